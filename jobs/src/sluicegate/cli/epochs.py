"""`sluicegate epochs`: shows the epoch log of a checkpoint, and discards the rows of a stuck sink."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click

from sluicegate.cli.common import KAFKA, format_time
from sluicegate.errors import EpochLogBroken, SluicegateError
from sluicegate.protocol.effects import run_effects
from sluicegate.protocol.markers import NO_MARKER, Marker
from sluicegate.protocol.record import DEAD_LETTERS, EpochRecord
from sluicegate.protocol.recovery import unapplied_record
from sluicegate.settings.epoch import EXACTLY_ONCE
from sluicegate.sinks.kafka.connection import Connection
from sluicegate.sinks.kafka.marker_reader import committed_marker as kafka_marker
from sluicegate.sinks.mysql.connection import Address
from sluicegate.sinks.mysql.writer import committed_marker as mysql_marker
from sluicegate.storage.epoch_log import StoredEpochLog, log_ports
from sluicegate.storage.epoch_report import EpochReport, read_report
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import ObjectStore, open_store

_BAR = 40
"""Width of a bar of the waterfall, in characters."""

MarkerReader = Callable[[str, str, int], Marker | None]
"""Lineage, sink, part -> the marker of the part in the sink. Reading it disturbs no running driver."""


def marker_readers(kafka: str, mysql: str) -> dict[str, MarkerReader]:
    """Return a marker reader for each kind of sink whose server is given."""
    readers: dict[str, MarkerReader] = {}
    if kafka:
        readers["kafka"] = partial(kafka_marker, Connection.of(kafka))
    if mysql:
        readers["mysql"] = partial(mysql_marker, Address.parse(mysql))
    return readers


def describe_apply(
    record: EpochRecord, sink: str, part: int, readers: dict[str, MarkerReader]
) -> str:
    """Describe whether a decided epoch is applied to a part of a sink."""
    kind = record.sinks[sink].kind
    if record.delivery != EXACTLY_ONCE:
        return f"unknown: {record.delivery} writes no markers"
    if kind not in readers:
        return f"not checked: set --{kind} or SLUICEGATE_{kind.upper()}"
    try:
        marker = readers[kind](record.lineage, sink, part)
    except SluicegateError as error:
        return f"unknown: {error.what}"
    prev = record.prev_of(sink, part)
    if marker == record.marker:
        state = "applied"
    elif marker == prev or (marker is None and prev == NO_MARKER):
        state = "not applied yet"
    elif marker is not None and marker.epoch > record.epoch:
        state = f"applied; the sink is now at {marker}"
    else:
        state = f"UNEXPECTED: the marker is {marker or 'absent'}"
    return state


@click.group()
def epochs() -> None:
    """Show decided epochs, or discard the rows of a stuck sink."""


@epochs.command("list")
@click.argument("checkpoint")
@click.option("--last", default=20, help="Number of epochs to list.")
def list_(checkpoint: str, last: int) -> None:
    """List the newest decided epochs, newest last, with time, state, staged bytes and rows by sink.

    State: `applied`, every sink has it; `in doubt`, nothing in the checkpoint shows that, and a sink
    may lack it. The markers in the sinks are not read: `sluicegate epochs show` does that.
    """
    store = open_store(checkpoint)
    log, lineage = StoredEpochLog(store), read_lineage(store)
    retained, seal = log.decided(), log.seal()
    job = (
        f"job {lineage.job}, lineage {lineage.id}"
        if lineage
        else "no lineage: no job of Sluicegate has run on it"
    )
    click.echo(f"{job}; {len(retained)} epochs retained")
    doubt = _in_doubt(store)
    for epoch in retained[-last:]:
        record, discarded = _read(log, epoch), log.discarded(epoch)
        rows = "  ".join(
            f"{sink} {record.rows(sink):,}{' DISCARDED' if sink in discarded else ''}"
            for sink in record.sinks
        )
        state = "in doubt" if epoch == doubt else "applied"
        size = sum(chunk.size for chunk in record.chunks)
        click.echo(f"{epoch:>8}  {_when(record)}  {state:<8}  {size:>12,} B  {rows}")
    if seal is not None:
        click.echo(f"{seal.epoch:>8}  sealed: {seal.why}")


@epochs.command()
@click.argument("checkpoint")
@click.argument("epoch", type=int)
@KAFKA
@click.option(
    "--mysql",
    envvar="SLUICEGATE_MYSQL",
    default="",
    help="URL of the MySQL server, to read the markers there.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print only the report of the epoch's steps, as a JSON object; null if it has none.",
)
def show(checkpoint: str, epoch: int, kafka: str, mysql: str, *, as_json: bool) -> None:
    """Show how an epoch was decided, whether each sink has its rows, and when each step ran."""
    store = open_store(checkpoint)
    log = StoredEpochLog(store)
    record = _read(log, epoch)
    if as_json:
        report = _report(store, epoch)
        click.echo("null" if report is None else report.as_json())
        return
    readers = marker_readers(kafka, mysql)
    committed = store.read(f"commits/{epoch}") is not None
    click.echo(f"epoch {epoch} of job {record.job}, lineage {record.lineage}, {record.delivery}")
    click.echo(f"  decided   {_when(record)} by attempt {record.attempt}")
    applied = "the sinks may lag, see below" if record.overlapped else "every sink has it"
    click.echo(f"  Spark     {f'committed: {applied}' if committed else 'not committed'}")
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
                f"{len(chunks)} chunks ({inline} inline); {describe_apply(record, sink, part, readers)}"
            )
    for label, number in record.counts.items():
        kind = label.removeprefix(DEAD_LETTERS)
        words = label.replace("_", " ") if kind == label else f"dead letters, {kind}"
        click.echo(f"  {words}: {number:,}")
    report = _report(store, epoch)
    if report is not None:
        note = "" if report.attempt == record.attempt else f", OF ATTEMPT {report.attempt}"
        click.echo(f"  steps{', of a replay' if report.replayed else ''}{note}:")
        for line in waterfall(report):
            click.echo(f"    {line}")


@epochs.command()
@click.argument("checkpoint")
@click.argument("epoch", type=int)
@click.argument("sink")
@click.option("--why", required=True, help="The reason. It is stored with the epoch.")
@click.confirmation_option(prompt="This sink will never get the rows of this epoch. Continue?")
def discard(checkpoint: str, epoch: int, sink: str, why: str) -> None:
    """Discard the rows of a stuck sink in the newest epoch. The next start continues without them.

    Stop the job first: a driver that runs may still write them.
    """
    store = open_store(checkpoint)
    log = StoredEpochLog(store)
    record = _read(log, epoch)
    if sink not in record.sinks:
        raise click.UsageError(
            f"epoch {epoch} has no sink {sink}; it has {', '.join(record.sinks)}"
        )
    unapplied = run_effects(unapplied_record(), log_ports(store))
    if unapplied is None or unapplied.epoch != epoch:
        raise click.UsageError(
            f"every sink has epoch {epoch}: its rows are in {sink}, and nothing was discarded"
        )
    first = log.discard(epoch, sink, why)
    click.echo(
        f"{record.rows(sink):,} rows of {sink} {'are' if first else 'were already'} discarded"
    )


def _in_doubt(store: ObjectStore) -> int | None:
    """Return the decided epoch that a sink may lack, None if every sink has each; at most one exists."""
    record = run_effects(unapplied_record(), log_ports(store))
    if record is None:
        return None
    report = _report(store, record.epoch)
    return None if report is not None and report.attempt == record.attempt else record.epoch


def _read(log: StoredEpochLog, epoch: int) -> EpochRecord:
    record = log.read(epoch)
    if record is None:
        raise EpochLogBroken(
            f"epoch {epoch} has no record",
            data="it is undecided or was pruned; nothing was changed",
            do="see `sluicegate epochs list`",
        )
    return record


def waterfall(report: EpochReport) -> list[str]:
    """Return a line for each step: start after the first step, duration, and both as a bar."""
    steps = sorted(report.steps, key=lambda step: (step.start_ms, -step.duration_ms))
    if not steps:
        return ["none: the epoch was marked as applied already, or has no rows"]
    first = steps[0].start_ms
    scale = _BAR / max(1.0, max(step.start_ms + step.duration_ms for step in steps) - first)
    lines = []
    for step in steps:
        part = "" if step.part is None else f" part {step.part}"
        label = f"{step.name} {step.sink}{part}".rstrip()
        start_ms = step.start_ms - first
        before = min(_BAR - 1, int(start_ms * scale))
        bar = " " * before + "#" * max(1, int((start_ms + step.duration_ms) * scale) - before)
        lines.append(
            f"{start_ms:>10,.0f} ms {step.duration_ms:>10,.1f} ms  |{bar:<{_BAR}}|  {label}"
        )
    tries = ((sink, of.tries) for sink, of in report.sinks.items() if of.tries > 1)
    return lines + [f"{sink} was tried {number} times" for sink, number in tries]


def _report(store: ObjectStore, epoch: int) -> EpochReport | None:
    """Return the report of an epoch; None, with a warning, if it cannot be parsed."""
    try:
        return read_report(store, epoch)
    except ValueError as error:
        click.echo(f"no times of steps: {error}; the epoch itself is not affected", err=True)
        return None


def _when(record: EpochRecord) -> str:
    return format_time(record.decided_at_ms, milliseconds=True)
