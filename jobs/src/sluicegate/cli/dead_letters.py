"""`sluicegate dead-letters`: shows the dead letters of a topic and replays their records after a fix."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice

import click

from sluicegate.cli.common import KAFKA, format_time
from sluicegate.dead_letters.replay import Replay, ReplayStep
from sluicegate.dead_letters.summary import address, by_reason
from sluicegate.dead_letters.topic import (
    DeadLetter,
    parse_dead_letter,
    read_dead_letters,
)
from sluicegate.sinks.kafka.connection import Connection
from sluicegate.sinks.kafka.reader import CommittedReader, Position, Record

_AGO = re.compile(r"(\d+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_PAGE = 5000
"""Dead letters whose records are in memory at once."""


class _Since(click.ParamType):
    """A time or an age, as ms since 1970."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        ago = _AGO.fullmatch(str(value))
        if ago:
            seconds = int(ago[1]) * _SECONDS[ago[2]]
            return round((dt.datetime.now(dt.UTC).timestamp() - seconds) * 1000)
        try:
            at = dt.datetime.fromisoformat(str(value))
        except ValueError:
            self.fail("use 2026-01-31T12:00:00 (UTC), or an age: 90m, 36h, 7d", param, ctx)
        return round((at if at.tzinfo else at.replace(tzinfo=dt.UTC)).timestamp() * 1000)


def _filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the topic and the options that select dead letters."""
    reason = click.option(
        "--reason", default="", help="Only those whose reason starts with this text, such as late."
    )
    since = click.option(
        "--since",
        type=_Since(),
        help="Only those since a time, such as 2026-01-31T12:00:00 (UTC), or of the last hours, such as 36h.",
    )
    return click.argument("topic")(KAFKA(since(reason(command))))


@click.group("dead-letters")
def dead_letters() -> None:
    """Show dead letters and replay their records."""


@dead_letters.command("list")
@_filter_options
@click.option("--examples", default=2, help="Number of examples to show for each reason.")
def list_(topic: str, kafka: str, since: int | None, reason: str, examples: int) -> None:
    """List dead letters by reason, with counts, the time of the newest one, and examples."""
    connection = Connection.of(kafka)
    with closing(Replay(connection, topic)) as replay:
        replayed = replay.replayed().positions
    letters = _letters(connection, topic, since, reason)
    reasons = by_reason(letters, examples, replayed=replayed)
    if not reasons:
        click.echo("no such dead letters")
    for each in reasons:
        click.echo(
            f"{each.count:>10,}  {each.group}  (replayed {each.replayed:,}; "
            f"newest {format_time(each.newest_ms)})"
        )
        for example in each.examples:
            click.echo(f"            {example.address}: {example.text}")


@dead_letters.command()
@click.argument("topic")
@click.argument("position")
@KAFKA
def show(topic: str, position: str, kafka: str) -> None:
    """Show the dead letter at POSITION (partition/offset), and whether its record can be sent again."""
    match = re.fullmatch(r"(\d+)[/:](\d+)", position)
    if match is None:
        raise click.UsageError(
            f"{position!r} is not a position; use partition/offset, such as 0/17"
        )
    connection = Connection.of(kafka)
    letter = _letter_at(connection, Position(topic, int(match[1]), int(match[2])))
    with closing(Replay(connection, topic)) as replay:
        (step,) = replay.plan([letter])
        replayed = letter.position in replay.replayed().positions
    click.echo(f"letter    {address(letter)}, {format_time(letter.time_ms)}")
    click.echo(f"reason    {letter.reason}")
    time = f", {format_time(letter.source_ms)}" if letter.source_ms is not None else ""
    click.echo(f"source    {letter.source}{time}" if letter.source else "source    names no topic")
    click.echo(f"replay    {'done' if replayed else _outcome(step)}")
    if isinstance(step.record, Record) and step.complete:
        click.echo(f"key       {step.record.key!r}")
        click.echo(f"headers   {list(step.record.headers)!r}")
        click.echo(f"record    {step.record.value!r}")
    else:
        click.echo(f"letter    {letter.value!r}")


@dead_letters.command()
@_filter_options
@click.option(
    "--to", default="", help="Send to this topic instead of the one that a dead letter names."
)
@click.option("--refused", is_flag=True, help="Also send the records of rows that a sink refused.")
@click.option(
    "--yes",
    is_flag=True,
    help="Send the records. Without this option, only print what would be sent.",
)
def replay(  # noqa: PLR0913 - an option each
    topic: str, kafka: str, since: int | None, reason: str, to: str, *, refused: bool, yes: bool
) -> None:
    """Send the records of dead letters again, each exactly once, even if this command is killed.

    A record that is still in its topic is sent as it was: key, value, headers, timestamp, partition.
    Otherwise the dead letter's payload is sent, if its hash proves that it is complete. For a refused
    row the whole record is sent again: the job repeats its other rows from that record.
    """
    if to == topic:
        raise click.UsageError("--to names the dead-letter topic itself; name another topic")
    connection = Connection.of(kafka)
    with closing(Replay(connection, topic, to or None)) as run:
        if yes:
            run.take_over()
        replayed = run.replayed()
        records = set(replayed.records)
        letters = _letters(connection, topic, since, reason)
        unreplayed = (letter for letter in letters if letter.position not in replayed.positions)
        skipped: Counter[str] = Counter()
        sent: Counter[str] = Counter()
        while page := list(islice(unreplayed, _PAGE)):
            steps = run.plan([letter for letter in page if letter.of_record or refused])
            sendable = [step for step in steps if step.target is not None]
            skipped["of a refused row; use --refused"] += len(page) - len(steps)
            skipped.update(str(step.record) for step in steps if step.target is None)
            if yes:
                for count in run.send(sendable, replayed):
                    click.echo(f"{count:>10,}  sent and noted")
            sent.update(_outcome_of_one(step, records) for step in sendable)
    for outcome, count in sent.most_common():
        click.echo(f"{count:>10,}  {'' if yes else 'would be '}{outcome}")
    for problem, count in (+skipped).most_common():
        click.echo(f"{count:>10,}  NOT REPLAYABLE: {problem}")
    if not yes:
        click.echo("nothing was sent; use --yes to send them")


def _letters(
    connection: Connection, topic: str, since: int | None, reason: str
) -> Iterator[DeadLetter]:
    letters = read_dead_letters(connection, topic, since)
    return (letter for letter in letters if letter.reason.startswith(reason))


def _letter_at(connection: Connection, position: Position) -> DeadLetter:
    with CommittedReader(connection, skip_gaps=True) as reader:
        for record in reader.pick(position.topic, position.partition, [position.offset]):
            return parse_dead_letter(position.topic, record)
    raise click.UsageError(
        f"there is no dead letter at {position}; it never existed or was deleted"
    )


def _outcome_of_one(step: ReplayStep, records: set[tuple[str, str]]) -> str:
    """Return what happens to a dead letter, and add its record to those that are sent."""
    record_id, target = step.letter.record_id, step.target
    if record_id is None or target is None:
        return _outcome(step)
    if (record_id, target) in records:
        return f"noted: the record is in {target} for another dead letter"
    records.add((record_id, target))
    return _outcome(step)


def _outcome(step: ReplayStep) -> str:
    if isinstance(step.record, str):
        return f"not possible: {step.record}"
    form = "as it was" if step.complete else "from its dead letter, without key and headers"
    return f"sent to {step.target} {form}"
