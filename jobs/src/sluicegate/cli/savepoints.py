"""`sluicegate savepoint` and `sluicegate stop`: savepoints of a checkpoint, and stopping its job.

`stop` sends its request through the checkpoint, so it works from any machine that reaches the store.
"""

from __future__ import annotations

import click

from sluicegate.cli.common import format_time
from sluicegate.errors import SavepointRefused, SluicegateError
from sluicegate.savepoints.catalog import Savepoint, dispose_savepoint, list_savepoints
from sluicegate.savepoints.restore import restore_savepoint
from sluicegate.savepoints.stop_request import await_answer, request_stop
from sluicegate.savepoints.take import take_savepoint
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import absolute, open_store

_STOP_TIMEOUT_S = 900.0
"""Time limit for a driver that has accepted a request: an epoch, and the copy of a savepoint."""


@click.group()
def savepoint() -> None:
    """Take, list, restore and delete savepoints. Addresses are paths or s3://bucket/prefix."""


@savepoint.command()
@click.argument("checkpoint")
@click.argument("folder")
@click.option(
    "--seal",
    is_flag=True,
    help="End the job on this checkpoint, so that the savepoint can move it. The job must be stopped.",
)
def take(checkpoint: str, folder: str, seal: bool) -> None:  # noqa: FBT001 - a flag of click
    """Take a savepoint of a running or stopped job, in a new folder below FOLDER."""
    taken = take_savepoint(open_store(checkpoint), folder, seal=seal)
    click.echo(_line(taken))
    if taken.manifest is not None and taken.manifest.sealed:
        click.echo(f"{checkpoint} is sealed: its job no longer starts there. Continue with")
        click.echo(f"  sluicegate savepoint restore {taken.url} NEW_CHECKPOINT")


@savepoint.command("list")
@click.argument("folder")
def list_(folder: str) -> None:
    """List the savepoints in a folder, oldest first."""
    savepoints = list_savepoints(folder)
    for each in savepoints:
        click.echo(_line(each))
    if not savepoints:
        click.echo(f"no savepoint in {folder}")


@savepoint.command()
@click.argument("savepoint_", metavar="SAVEPOINT")
@click.argument("checkpoint")
@click.option(
    "--branch",
    is_flag=True,
    help="Create a branch next to the original, even if the savepoint was sealed for a move.",
)
@click.option(
    "--same-sinks",
    is_flag=True,
    help="Allow a branch to write to the sinks of the original. Rows may be written twice.",
)
def restore(savepoint_: str, checkpoint: str, branch: bool, same_sinks: bool) -> None:  # noqa: FBT001 - flags of click
    """Restore a savepoint into an empty CHECKPOINT, which becomes a new lineage.

    A sealed savepoint moves its job, once. Any other creates a branch, which needs other sinks.
    """
    lineage = restore_savepoint(
        open_store(savepoint_), open_store(checkpoint), branch=branch, same_sinks=same_sinks
    )
    how = "replaces" if lineage.moved else "is a branch of"
    click.echo(
        f"{checkpoint}: job {lineage.job}, lineage {lineage.id} {how} lineage {lineage.parent} "
        f"from epoch {lineage.first_epoch} on"
    )
    if not lineage.moved:
        may = "may" if lineage.same_sinks else "must not"
        click.echo(f"it {may} write to the sinks of the original")


@savepoint.command()
@click.argument("savepoint_", metavar="SAVEPOINT")
@click.option("--unfinished", is_flag=True, help="Delete an incomplete savepoint.")
@click.option(
    "--force",
    is_flag=True,
    help="Delete the savepoint even if it is the only way for a sealed job to continue.",
)
@click.confirmation_option(prompt="The savepoint will be deleted permanently. Continue?")
def dispose(savepoint_: str, unfinished: bool, force: bool) -> None:  # noqa: FBT001 - flags of click
    """Delete a savepoint: its manifest first, then its files."""
    deleted = dispose_savepoint(open_store(savepoint_), unfinished=unfinished, force=force)
    click.echo(f"{deleted:,} files deleted")


@click.command()
@click.argument("checkpoint")
@click.option(
    "--savepoint",
    "folder",
    default="",
    help="Take a savepoint in this folder and seal the job, so that the savepoint can move it.",
)
@click.option(
    "--timeout",
    "timeout_s",
    default=60.0,
    help="Time limit in seconds for a driver to accept the request.",
)
def stop(checkpoint: str, folder: str, timeout_s: float) -> None:
    """Stop the running job of a checkpoint at the end of an epoch. Its supervisor stops too."""
    store = open_store(checkpoint)
    lineage = read_lineage(store)
    if lineage is None:
        raise SavepointRefused(
            f"{checkpoint} has no lineage: no job of Sluicegate has run on it",
            data="nothing was changed",
            do="pass the checkpoint of the job",
        )
    seal = StoredEpochLog(store).seal()
    if seal is not None:
        raise seal.error()
    # the driver has its own working directory
    folder = absolute(folder) if folder else ""
    request = request_stop(store, lineage.id, savepoint=folder, valid_s=timeout_s)
    click.echo(f"requested job {lineage.job} to stop at the end of an epoch", err=True)
    try:
        answer = await_answer(store, request, timeout_s=timeout_s + _STOP_TIMEOUT_S)
    except TimeoutError as error:
        raise SluicegateError(
            f"a driver accepted the request but did not answer within {_STOP_TIMEOUT_S:g} s",
            data="it is completing an epoch or has died; every decided epoch will be applied",
            do="check the driver's log, and repeat the request when a driver runs",
        ) from error
    if answer is None:
        raise SluicegateError(
            f"no driver of job {lineage.job} accepted the request within {timeout_s:g} s, so it was "
            "withdrawn",
            data="nothing was changed",
            do="if the job is stopped: `sluicegate savepoint take CHECKPOINT FOLDER --seal` moves it",
        )
    click.echo(answer.message)
    if not answer.stopped:
        raise SluicegateError(
            "the job did not stop as requested",
            data="every decided epoch will be applied; nothing is lost or repeated",
            do="fix the cause shown above, then repeat the request: the supervisor may have restarted the "
            "job",
        )


def _line(savepoint: Savepoint) -> str:
    manifest = savepoint.manifest
    if manifest is None:
        begun = savepoint.begun_at_ms
        since = f", begun {format_time(begun)}" if begun else ""
        return f"{savepoint.url}  INCOMPLETE{since}: cannot be restored"
    kind = "moves the job" if manifest.sealed else "branch"
    state = f"restored into {savepoint.moved_to}" if savepoint.moved_to else kind
    return (
        f"{savepoint.url}  {format_time(manifest.created_at_ms)}  job {manifest.job}  "
        f"epoch {manifest.epoch}  "
        f"{len(manifest.files):,} files  {manifest.size:,} B  {state}"
    )
