"""One driver from its start to its exit code: restore, run the user's main, say how it ended.

Not here: the signal's handler (`__main__`), what stops a query (`spark.ending`, `spark.query`).
"""

from __future__ import annotations

import logging
import runpy
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from sluicegate.checkpoint.owing import unfinished_epoch
from sluicegate.checkpoint.restoring import restore
from sluicegate.pod.arguments import Main, parse
from sluicegate.protocol.errors import EpochUnfinished, SettingsInvalid, SluicegateError
from sluicegate.settings.schema import NOTHING_STARTED
from sluicegate.settings.told import Told
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.objects import open_objects
from sluicegate.tracing import outcome

log = logging.getLogger("sluicegate.pod")

_LOOKED_AHEAD = 3
"""Numbers beyond the newest: one that was given and never begun leaves a gap."""


def main(arguments: Sequence[str]) -> int:
    """Run a driver; its end is in the outcome file unless it is 0.

    Args:
        arguments: see `pod.arguments`.

    Returns:
        The exit code: of the error of ours that ended it, or of its SystemExit; 1 of any other
        exception. 0 only if every decided epoch of the checkpoint is known to be in every sink.
    """
    return _said(partial(_run, arguments))


def ended() -> int:
    """Return the exit code of a driver that was asked to end while it ran no main."""
    return _said(_well)


def _said(work: Callable[[], int]) -> int:
    """Do the work; log what ends it and leave it in the outcome file."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        code = work()
    except SluicegateError as error:
        log.error("%s: %s", type(error).__name__, error)
        outcome.write(error)
        return error.exit_code
    except Exception as error:
        log.exception("the job's main failed")
        first = next(iter(str(error).splitlines()), "")
        outcome.write_said(
            type(error).__name__,
            first or "it says nothing more",
            data="an epoch that is undecided is visible nowhere and its input is read again; one "
            "that is decided is applied by the next start",
            do="look at the driver's log",
        )
        return 1
    if code and not outcome.written():
        outcome.write_said("SystemExit", f"the job's main ended with exit code {code}")
    return code


def _run(arguments: Sequence[str]) -> int:
    told, wanted = Told.read(), parse(arguments)
    log.info(
        "driver of %s, attempt %s, to %s: %s, checkpoint %s",
        told.job or "no resource",
        told.attempt or "unknown",
        told.purpose,
        wanted.name,
        told.checkpoint or "as the code says",
    )
    if told.finishes and not _owes(told):
        log.info("every decided epoch is in every sink: nothing is to be finished")
        return 0
    try:
        if not told.finishes:
            _refuse_what_was_left(told)
        if told.restore_from:
            _restore(told)
        _run_main(wanted)
        code = 0
    except SystemExit as end:
        code = _code_of(end)
    return code or _well()


def _refuse_what_was_left(told: Told) -> None:
    """Refuse a checkpoint that an earlier job of this path has left for a newer one.

    An upgrade leaves checkpoint N for N+1, and a stateless one does not seal it: a job that is made again under
    its name would begin at the old one, and read again what the newer has in the sinks.

    Raises:
        SettingsInvalid: there is a newer checkpoint than this job's own newest.
    """
    if not told.newest_checkpoint or not told.checkpoint:
        return
    path, _, number = told.checkpoint.rstrip("/").rpartition("/")
    for newer in range(told.newest_checkpoint + 1, told.newest_checkpoint + 1 + _LOOKED_AHEAD):
        if read_lineage(open_objects(f"{path}/{newer}")) is None:
            continue
        raise SettingsInvalid(
            f"{path} has a checkpoint {newer}, and this job has come to {told.newest_checkpoint} only: an "
            "earlier job of this path was there, or the resource's status was lost",
            data=f"nothing was started: from checkpoint {number} on, input would be read again that {newer} "
            "may have in the sinks",
            do=f"make the job again with another path; to go on where {newer} is, with restoreFrom of a "
            f"savepoint of it. To begin at {number} all the same, move {path}/{newer} away",
        )


def _restore(told: Told) -> None:
    """Restore the savepoint unless the checkpoint has a lineage; may be killed and run again."""
    if not told.checkpoint:
        raise _no_checkpoint("to restore into")
    found = read_lineage(open_objects(told.checkpoint))
    if found is not None:
        log.info("%s has lineage %s: nothing is restored", told.checkpoint, found.id)
        return
    made = restore(told.restore_from, told.checkpoint)
    how = "in the place of" if made.moved else "as a branch of"
    log.info(
        "%s is restored from %s: lineage %s, %s lineage %s, from epoch %d on",
        told.checkpoint,
        told.restore_from,
        made.id,
        how,
        made.parent,
        made.first_epoch,
    )


def _run_main(wanted: Main) -> None:
    """Run it as Python would, in this process."""
    sys.argv[1:] = wanted.arguments
    if wanted.module:
        runpy.run_module(wanted.module, run_name="__main__", alter_sys=True)
        return
    if not Path(wanted.file).is_file():
        raise SettingsInvalid(
            f"there is no file {wanted.file}",
            data=NOTHING_STARTED,
            do="name a file of the image, or of a volume that is mounted",
        )
    # `python FILE` finds what is beside the file, `python -m` what is in the working directory
    sys.path[0] = str(Path(wanted.file).resolve().parent)
    runpy.run_path(wanted.file, run_name="__main__")


def _code_of(end: SystemExit) -> int:
    """Return the exit code as the interpreter would; what is no number is printed."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    sys.stderr.write(f"{end.code}\n")
    return 1


def _owes(told: Told) -> bool:
    if not told.checkpoint:
        raise _no_checkpoint("to finish")
    return unfinished_epoch(open_objects(told.checkpoint)) is not None


def _well() -> int:
    """Return 0, unless somebody must still apply something: after a 0 nobody would.

    Raises:
        EpochUnfinished: a decided epoch may not be in every sink.
    """
    told = Told.read()
    if not told.checkpoint:
        return 0
    epoch = unfinished_epoch(open_objects(told.checkpoint))
    if epoch is not None:
        raise EpochUnfinished(
            f"epoch {epoch} is decided and may not be in every sink yet, and this driver has ended",
            data="nothing is lost; the next start of the job applies it, or one that only finishes",
            do="start the job again on this checkpoint, or with the purpose finish",
        )
    return 0


def _no_checkpoint(why: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"SLUICEGATE_CHECKPOINT is not set: there is no checkpoint {why}",
        data=NOTHING_STARTED,
        do="set it to the address of the job's checkpoint",
    )
