"""`sluicegate epochs`: what the epoch log of a checkpoint holds, and giving up a stuck sink's rows."""

from __future__ import annotations

import datetime as dt

import click

from sluicegate.cli.applied import applied, readers
from sluicegate.protocol.errors import EpochLogBroken
from sluicegate.protocol.record import LETTERS, EpochRecord
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.objects import open_objects


@click.group()
def epochs() -> None:
    """Show the decided epochs of a checkpoint."""


@epochs.command("list")
@click.argument("checkpoint")
@click.option("--last", default=20, help="how many, the newest last")
def list_(checkpoint: str, last: int) -> None:
    """List the newest decided epochs: when decided, rows by sink, staged bytes."""
    objects = open_objects(checkpoint)
    log, lineage = StoredEpochLog(objects), read_lineage(objects)
    kept, seal = log.decided(), log.seal()
    job = (
        f"job {lineage.job}, lineage {lineage.id}"
        if lineage
        else "no lineage: never run by Sluicegate"
    )
    click.echo(f"{job}; {len(kept)} epochs kept")
    for epoch in kept[-last:]:
        record = _read(log, epoch)
        rows = "  ".join(f"{sink} {record.rows(sink):,}" for sink in record.sinks)
        state = "committed" if objects.read(f"commits/{epoch}") is not None else "decided"
        click.echo(f"{epoch:>8}  {_when(record)}  {state:<9}  {_bytes(record):>12,} B  {rows}")
    if seal is not None:
        click.echo(f"{seal.epoch:>8}  sealed: {seal.why}")


@epochs.command()
@click.argument("checkpoint")
@click.argument("epoch", type=int)
@click.option("--kafka", envvar="SLUICEGATE_KAFKA", default="", help="where to ask for markers")
@click.option("--mysql", envvar="SLUICEGATE_MYSQL", default="", help="the same, of MySQL: a url")
def show(checkpoint: str, epoch: int, kafka: str, mysql: str) -> None:
    """Show one epoch: when decided, by which attempt, and what each sink was given and holds."""
    asks = readers(kafka, mysql)
    objects = open_objects(checkpoint)
    log = StoredEpochLog(objects)
    record = _read(log, epoch)
    committed = objects.read(f"commits/{epoch}") is not None
    click.echo(f"epoch {epoch} of job {record.job}, lineage {record.lineage}, {record.delivery}")
    click.echo(f"  decided   {_when(record)} by attempt {record.attempt}")
    sinks = "the sinks may be behind, see below" if record.overlapped else "every sink holds it"
    click.echo(
        f"  Spark     {f'has committed it: {sinks}' if committed else 'has not committed it'}"
    )
    click.echo(f"  offsets   sha256 {record.offsets_digest}")
    click.echo(f"  trace     {record.traceparent or 'not traced'}")
    discarded = log.discarded(epoch)
    for sink, binding in record.sinks.items():
        note = "  DISCARDED" if sink in discarded else ""
        click.echo(f"  {sink}: {binding.target}, {record.rows(sink):,} rows{note}")
        for part in record.parts_with_rows(sink):
            chunks = record.part_chunks(sink, part)
            inline = sum(c.inline is not None for c in chunks)
            click.echo(
                f"    part {part}: {sum(c.rows for c in chunks):,} rows, {sum(c.size for c in chunks):,} B in "
                f"{len(chunks)} chunks ({inline} inline); {applied(record, sink, part, asks)}"
            )
    for label, number in record.counts.items():
        kind = label.removeprefix(LETTERS)
        said = label.replace("_", " ") if kind == label else f"dead letters, {kind}"
        click.echo(f"  {said}: {number:,}")


@epochs.command()
@click.argument("checkpoint")
@click.argument("epoch", type=int)
@click.argument("sink")
@click.option("--why", required=True, help="kept with the epoch")
@click.confirmation_option(prompt="The rows of this sink will be missing from it for good. Go on?")
def discard(checkpoint: str, epoch: int, sink: str, why: str) -> None:
    """Give up the rows of a stuck sink in one decided epoch; the next start goes on without them."""
    log = StoredEpochLog(open_objects(checkpoint))
    record = _read(log, epoch)
    if sink not in record.sinks:
        raise click.UsageError(
            f"epoch {epoch} has no sink {sink}; it has {', '.join(record.sinks)}"
        )
    new = log.discard(epoch, sink, why)
    click.echo(
        f"{record.rows(sink):,} rows of {sink} are discarded" if new else "it was discarded already"
    )


def _read(log: StoredEpochLog, epoch: int) -> EpochRecord:
    record = log.read(epoch)
    if record is None:
        raise EpochLogBroken(
            f"epoch {epoch} has no record",
            data="it is undecided, or was pruned; nothing was changed",
            do="see `sluicegate epochs list`",
        )
    return record


def _when(record: EpochRecord) -> str:
    at = dt.datetime.fromtimestamp(record.decided_at_ms / 1000, tz=dt.UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _bytes(record: EpochRecord) -> int:
    return sum(chunk.size for chunk in record.chunks)
