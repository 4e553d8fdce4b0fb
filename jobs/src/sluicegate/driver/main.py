"""One driver from its start to its exit code: restore, run the user's main, report how it ended.

The signal handler is in `__main__`; what stops a query is in `sluicegate.spark.shutdown`.
"""

from __future__ import annotations

import logging
import os
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sluicegate.deployment import promotion, termination
from sluicegate.deployment.environment import APPLY_ONLY, DriverEnvironment, DriverVariable
from sluicegate.errors import EpochUnfinished, SettingsInvalid, SluicegateError
from sluicegate.protocol.effects import run_effects
from sluicegate.protocol.recovery import unapplied_record
from sluicegate.savepoints.restore import restore_savepoint
from sluicegate.settings.schema import NOTHING_STARTED
from sluicegate.spark import shutdown
from sluicegate.spark.start_times import OF_PROCESS, StartPart
from sluicegate.storage.driver_end import DriverEnd, write_end
from sluicegate.storage.driver_failure import DriverFailure, write_failure
from sluicegate.storage.epoch_log import log_ports
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import ObjectStore, open_store
from sluicegate.storage.owner import Owner, claim_owner

log = logging.getLogger("sluicegate.driver")

_NUMBERS_AHEAD = 3
"""Checkpoint numbers to probe beyond the newest: a number that was never used leaves a gap."""


def main(arguments: Sequence[str]) -> int:
    """Run a driver. The reason for an exit code other than 0, or for a stop, is in the termination file.

    Returns:
        The exit code: of the SluicegateError or the SystemExit that ended the driver, or 1 for any
        other exception. 0 only if every decided epoch of the checkpoint is known to be in every sink.
    """
    return _recorded(partial(_run, arguments))


def stopped() -> int:
    """Return the exit code of a driver that was stopped before or after its main ran."""
    return _recorded(_exit_code_of_success)


def unapplied_epoch(checkpoint: ObjectStore) -> int | None:
    """Return the decided epoch that may not be in every sink, according to the checkpoint alone.

    Raises:
        StoreUnavailable: no reply.
        EpochLogBroken: the record cannot be read.
    """
    if read_lineage(checkpoint) is None:
        return None
    record = run_effects(unapplied_record(), log_ports(checkpoint))
    return None if record is None else record.epoch


def _recorded(work: Callable[[], int]) -> int:
    """Do the work and report how it ended, which is also recorded for the console.

    A standby that ends before its promotion was no driver of the job, and is not recorded. Neither is one
    that has only applied what was decided.
    """
    started = time.monotonic()
    code = _reporting(work)
    checkpoint = os.environ.get(DriverVariable.CHECKPOINT)
    file = os.environ.get(DriverVariable.TERMINATION_FILE)
    if checkpoint and not promotion.is_waiting():
        ran_s = time.monotonic() - started
        if code:
            reason = termination.read(Path(file)) if file else None
            write_failure(checkpoint, DriverFailure.now(code, ran_s, reason))
        elif os.environ.get(DriverVariable.MODE) != APPLY_ONLY:
            if shutdown.stopped():
                what = "its end was requested, and it may not have read all available input"
                termination.write_message(termination.STOPPED, what)
            write_end(checkpoint, DriverEnd.now(ran_s, stopped=shutdown.stopped()))
    return code


def _reporting(work: Callable[[], int]) -> int:
    """Do the work; log the error that ends it and write it to the termination file."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    try:
        code = work()
    except SluicegateError as error:
        log.error("%s: %s", type(error).__name__, error)
        termination.write(error)
        return error.exit_code
    except Exception as error:
        log.exception("the job's main failed")
        first_line = next(iter(str(error).splitlines()), "")
        termination.write_message(
            type(error).__name__,
            first_line or "the exception has no message",
            data="an undecided epoch is visible nowhere and its input is read again; a decided one is "
            "applied by the next start",
            do="check the driver's log",
        )
        return 1
    if code and not termination.written():
        termination.write_message("SystemExit", f"the job's main ended with exit code {code}")
    return code


def _run(arguments: Sequence[str]) -> int:
    environment, user_main = DriverEnvironment.read(), parse_arguments(arguments)
    log.info(
        "driver of %s, attempt %s, mode %s: %s, checkpoint %s",
        environment.job or "no resource",
        environment.attempt or "unknown",
        environment.mode,
        user_main.module or user_main.file,
        environment.checkpoint or "set by the code",
    )
    _claim_path(environment)
    if environment.apply_only and _unapplied_epoch_of(environment) is None:
        log.info("every decided epoch is in every sink: nothing to apply")
        return 0
    try:
        if not environment.apply_only:
            _reject_outdated_checkpoint(environment)
        if environment.restore_from:
            with OF_PROCESS.part(StartPart.RESTORE):
                _restore(environment)
        _run_main(user_main)
        code = 0
    except SystemExit as end:
        code = _code_of(end)
    return code or _exit_code_of_success()


def _claim_path(environment: DriverEnvironment) -> None:
    """Make the job the owner of the path of its checkpoints; a driver without a resource owns none."""
    namespace, _, name = environment.job.partition("/")
    if environment.checkpoint and name:
        path = environment.checkpoint.rstrip("/").rpartition("/")[0]
        claim_owner(open_store(path), Owner("StreamingJob", namespace, name))


def _reject_outdated_checkpoint(environment: DriverEnvironment) -> None:
    """Reject a checkpoint that an earlier job of the same path has replaced by a newer one.

    An upgrade goes from checkpoint N to N+1, and a stateless one does not seal N. A job that is
    created again under the same name would start at the old one.
    """
    if not environment.newest_checkpoint or not environment.checkpoint:
        return
    path, _, number = environment.checkpoint.rstrip("/").rpartition("/")
    for ahead in range(1, _NUMBERS_AHEAD + 1):
        newer = environment.newest_checkpoint + ahead
        if read_lineage(open_store(f"{path}/{newer}")) is None:
            continue
        raise SettingsInvalid(
            f"{path} has a checkpoint {newer}, but the newest one of this job is "
            f"{environment.newest_checkpoint}: an earlier job used this path, or the resource's status "
            "was lost",
            data=f"nothing was started: from checkpoint {number} on, input would be read again that is "
            f"in the sinks through checkpoint {newer}",
            do="create the job again with another path; to continue where checkpoint "
            f"{newer} is, set restoreFrom to a savepoint of it; to start at {number} nevertheless, move "
            f"{path}/{newer} away",
        )


def _restore(environment: DriverEnvironment) -> None:
    """Restore the savepoint unless the checkpoint has a lineage; resumes an interrupted restore."""
    checkpoint = _checkpoint_of(environment, "to restore into")
    existing = read_lineage(checkpoint)
    if existing is not None:
        log.info("%s has lineage %s: nothing to restore", checkpoint.url, existing.id)
        return
    lineage = restore_savepoint(open_store(environment.restore_from), checkpoint)
    log.info(
        "restored %s from %s: lineage %s %s lineage %s from epoch %d on",
        checkpoint.url,
        environment.restore_from,
        lineage.id,
        "replaces" if lineage.moved else "is a branch of",
        lineage.parent,
        lineage.first_epoch,
    )


def _exit_code_of_success() -> int:
    """Return 0, unless an epoch must still be applied: after a 0 nobody would apply it."""
    environment = DriverEnvironment.read()
    epoch = _unapplied_epoch_of(environment) if environment.checkpoint else None
    if epoch is not None:
        raise EpochUnfinished(
            f"epoch {epoch} is decided but may not be in every sink yet, and this driver has ended",
            data="nothing is lost; the next driver of the job applies the epoch",
            do=f"start the job again on this checkpoint, or with {DriverVariable.MODE}={APPLY_ONLY}",
        )
    return 0


def _unapplied_epoch_of(environment: DriverEnvironment) -> int | None:
    return unapplied_epoch(_checkpoint_of(environment, "whose epochs to apply"))


def _checkpoint_of(environment: DriverEnvironment, purpose: str) -> ObjectStore:
    if not environment.checkpoint:
        raise SettingsInvalid(
            f"{DriverVariable.CHECKPOINT} is not set: there is no checkpoint {purpose}",
            data=NOTHING_STARTED,
            do="set it to the address of the job's checkpoint",
        )
    return open_store(environment.checkpoint)


@dataclass(frozen=True)
class UserMain:
    """A user's main program: a module, run like `python -m`, or a file, and its arguments."""

    module: str
    file: str
    arguments: tuple[str, ...]


def parse_arguments(arguments: Sequence[str]) -> UserMain:
    """Return the main that a command line names.

    Args:
        arguments: `--module NAME` or `--file PATH`, then optionally `--` and arguments for the main.

    Raises:
        SettingsInvalid: the command line names no main.
    """
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    rest = tuple(arguments[end + 1 :])
    match list(arguments[:end]):
        case ["--module", name] if name:
            return UserMain(name, "", rest)
        case ["--file", path] if path:
            return UserMain("", path, rest)
        case _:
            raise SettingsInvalid(
                f"the driver's command line names no main: {' '.join(arguments) or 'it is empty'}",
                data=NOTHING_STARTED,
                do="pass --module NAME or --file PATH, then -- and the arguments of the main",
            )


def _run_main(user_main: UserMain) -> None:
    """Run the main in this process as Python would."""
    sys.argv[1:] = user_main.arguments
    if user_main.module:
        runpy.run_module(user_main.module, run_name="__main__", alter_sys=True)
        return
    if not Path(user_main.file).is_file():
        raise SettingsInvalid(
            f"the file {user_main.file} does not exist",
            data=NOTHING_STARTED,
            do="name a file of the image or of a mounted volume",
        )
    # `python FILE` imports from the file's folder, `python -m` from the working directory
    sys.path[0] = str(Path(user_main.file).resolve().parent)
    runpy.run_path(user_main.file, run_name="__main__")


def _code_of(end: SystemExit) -> int:
    """Return the exit code as the interpreter would; a message is printed and means 1."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    sys.stderr.write(f"{end.code}\n")
    return 1
