"""`sluicegate savepoint` and `sluicegate stop`: savepoints of a checkpoint, and ending its job.

Not here: what they do (`sluicegate.checkpoint`). `stop` asks the running driver through the
checkpoint, so it works from any machine that reaches the volume.
"""

from __future__ import annotations

import datetime as dt

import click

from sluicegate.checkpoint import requests, savepoints
from sluicegate.checkpoint.manifest import Manifest
from sluicegate.checkpoint.restoring import Wish
from sluicegate.checkpoint.restoring import restore as restore_into
from sluicegate.protocol.errors import SavepointRefused, SluicegateError
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.objects import open_objects

_FINISH_S = 900.0
"""How long a driver that has taken a stop up may need: an epoch, and copying a savepoint."""


@click.group()
def savepoint() -> None:
    """Take, list, restore and remove savepoints. Addresses are paths or s3://bucket/prefix."""


@savepoint.command()
@click.argument("checkpoint")
@click.argument("folder")
@click.option(
    "--seal", is_flag=True, help="of a stopped job: end it here, so that the savepoint can move it"
)
def take(checkpoint: str, folder: str, seal: bool) -> None:  # noqa: FBT001 - a flag of click
    """Take a savepoint of a running or stopped job, into a new folder below FOLDER."""
    made = savepoints.take(checkpoint, folder, seal=seal)
    click.echo(_line(made))
    if made.manifest is not None and made.manifest.sealed:
        click.echo(f"{checkpoint} is sealed: its job starts there no more. Go on with")
        click.echo(f"  sluicegate savepoint restore {made.url} NEW_CHECKPOINT")


@savepoint.command("list")
@click.argument("folder")
def list_(folder: str) -> None:
    """List the savepoints of a folder, the oldest first."""
    found = savepoints.listed(folder)
    for one in found:
        click.echo(_line(one))
    if not found:
        click.echo(f"no savepoint in {folder}")


@savepoint.command()
@click.argument("savepoint_", metavar="SAVEPOINT")
@click.argument("checkpoint")
@click.option(
    "--branch", is_flag=True, help="beside the original, though the savepoint could move it"
)
@click.option(
    "--same-sinks",
    is_flag=True,
    help="let a branch write to the sinks of the original: rows may come twice",
)
def restore(savepoint_: str, checkpoint: str, branch: bool, same_sinks: bool) -> None:  # noqa: FBT001 - flags of click
    """Restore a savepoint into an empty CHECKPOINT, which becomes a new lineage.

    A sealed savepoint moves its job, once. Any other becomes a branch, onto other sinks.
    """
    made = restore_into(savepoint_, checkpoint, Wish(branch, same_sinks))
    how = "in the place of" if made.moved else "as a branch of"
    click.echo(
        f"{checkpoint}: job {made.job}, lineage {made.id}, {how} lineage {made.parent}, "
        f"from epoch {made.first_epoch} on"
    )
    if not made.moved:
        where = "may be those" if made.same_sinks else "must be others than those"
        click.echo(f"its sinks {where} of the original")


@savepoint.command()
@click.argument("savepoint_", metavar="SAVEPOINT")
@click.option("--unfinished", is_flag=True, help="remove one that was never finished")
@click.option("--force", is_flag=True, help="even if it is the only way on of a sealed job")
@click.confirmation_option(prompt="The savepoint will be gone for good. Go on?")
def dispose(savepoint_: str, unfinished: bool, force: bool) -> None:  # noqa: FBT001 - flags of click
    """Remove a savepoint: its manifest first, then its files."""
    removed = savepoints.dispose(savepoint_, unfinished=unfinished, force=force)
    click.echo(f"{removed:,} files removed")


@click.command()
@click.argument("checkpoint")
@click.option("--savepoint", "folder", default="", help="seal the job and take a savepoint here")
@click.option("--timeout", "timeout_s", default=60.0, help="seconds for a driver to notice")
def stop(checkpoint: str, folder: str, timeout_s: float) -> None:
    """Stop the running job of a checkpoint at an epoch's end; its supervisor ends too."""
    objects = open_objects(checkpoint)
    lineage = read_lineage(objects)
    if lineage is None:
        raise SavepointRefused(
            f"{checkpoint} has no lineage: no job of Sluicegate has run on it",
            data="nothing was changed",
            do="give the checkpoint of the job",
        )
    seal = StoredEpochLog(objects).seal()
    if seal is not None:
        raise seal.error()
    request = requests.ask(objects, lineage.id, savepoint=folder, hold_s=timeout_s)
    click.echo(f"asked job {lineage.job} to stop at the end of an epoch", err=True)
    try:
        answer = requests.await_answer(objects, request, patience_s=timeout_s + _FINISH_S)
    except TimeoutError as error:
        raise SluicegateError(
            f"a driver has taken the request up and has not answered for {_FINISH_S:g} s",
            data="it is finishing an epoch, or has died; whatever is decided is applied in the end",
            do="look at the driver's log; ask again when it runs",
        ) from error
    if answer is None:
        raise SluicegateError(
            f"no driver of job {lineage.job} took the request up in {timeout_s:g} s; it is withdrawn",
            data="nothing was changed",
            do="if the job is stopped: `sluicegate savepoint take CHECKPOINT FOLDER --seal` moves it",
        )
    click.echo(answer.said)
    if not answer.stopped:
        raise SluicegateError(
            "the job did not stop as asked",
            data="what is decided is applied in the end; nothing is lost or repeated",
            do="see above; its supervisor may have started it again: mend the cause and ask again",
        )


def _line(one: savepoints.Savepoint) -> str:
    if one.manifest is None:
        return f"{one.url}  NEVER FINISHED: no savepoint"
    made: Manifest = one.manifest
    at = dt.datetime.fromtimestamp(made.created_at_ms / 1000, tz=dt.UTC)
    kind = "moves the job" if made.sealed else "branch"
    state = f"restored into {one.moved_to}" if one.moved_to else kind
    return (
        f"{one.url}  {at:%Y-%m-%d %H:%M:%S}  job {made.job}  epoch {made.epoch}  "
        f"{len(made.files):,} files  {made.size:,} B  {state}"
    )
