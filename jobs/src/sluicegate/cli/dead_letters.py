"""`sluicegate dead-letters`: what lies in a dead-letter topic, and sending it again after a fix.

Not here: the letters (`sinks.kafka.letters`) and the transactions (`sinks.kafka.replay`).
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import click

from sluicegate.sinks.kafka.clients import Connection
from sluicegate.sinks.kafka.letters import Letter, Restored, parsed, read_letters
from sluicegate.sinks.kafka.reading import CommittedReader, Position
from sluicegate.sinks.kafka.replay import Order, Replay

_AGO = re.compile(r"(\d+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_EXAMPLE_CHARACTERS = 100
_PAGE = 5000
"""Letters whose records are in memory at once."""


class _Since(click.ParamType):
    """A time, or how long ago; as ms since 1970."""

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
            self.fail("write 2026-01-31T12:00:00 (UTC), or how long ago: 90m, 36h, 7d", param, ctx)
        return round((at if at.tzinfo else at.replace(tzinfo=dt.UTC)).timestamp() * 1000)


def _chosen(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which letters."""
    for option in (
        click.option("--reason", default="", help="only letters whose reason begins so: late"),
        click.option("--since", type=_Since(), help="only letters since: 36h, 2026-01-31T12:00:00"),
        click.option("--kafka", envvar="SLUICEGATE_KAFKA", default="", help="bootstrap servers"),
    ):
        command = option(command)
    return click.argument("topic")(command)


@click.group("dead-letters")
def dead_letters() -> None:
    """Show the dead letters of a topic, and send their records again after a fix."""


@dead_letters.command("list")
@_chosen
@click.option("--examples", default=2, help="how many letters to show of each reason")
def list_(topic: str, kafka: str, since: int | None, reason: str, examples: int) -> None:
    """List the letters by reason: how many, how many are replayed, the newest, examples."""
    connection = Connection.of(kafka)
    with _replay(connection, topic) as replay:
        replayed = replay.replayed().letters
    counts: Counter[str] = Counter()
    again: Counter[str] = Counter()
    newest: dict[str, list[Letter]] = defaultdict(list)
    for letter in _letters(connection, topic, since, reason):
        counts[letter.group] += 1
        again[letter.group] += letter.at in replayed
        newest[letter.group] = [*newest[letter.group], letter][-max(1, examples) :]
    if not counts:
        click.echo("no such letters")
    for group, count in counts.most_common():
        last = newest[group][-1]
        click.echo(
            f"{count:>10,}  {group}  (replayed {again[group]:,}; newest {_when(last.time_ms)})"
        )
        for letter in newest[group][len(newest[group]) - examples :] if examples else []:
            click.echo(f"            {_place(letter)}: {_short(letter)}")


@dead_letters.command()
@click.argument("topic")
@click.argument("place")
@click.option("--kafka", envvar="SLUICEGATE_KAFKA", default="", help="bootstrap servers")
def show(topic: str, place: str, kafka: str) -> None:
    """Show the letter at PLACE, its partition/offset, and whether its record can be sent again."""
    found = re.fullmatch(r"(\d+)[/:](\d+)", place)
    if found is None:
        raise click.UsageError(f"{place!r} is no place; write partition/offset, such as 0/17")
    connection = Connection.of(kafka)
    letter = _letter_at(connection, Position(topic, int(found[1]), int(found[2])))
    with _replay(connection, topic) as replay:
        (order,) = replay.orders([letter])
        done = letter.at in replay.replayed().letters
    click.echo(f"letter    {_place(letter)}, {_when(letter.time_ms)}")
    click.echo(f"reason    {letter.reason}")
    at = f", {_when(letter.source_ms)}" if letter.source_ms is not None else ""
    click.echo(f"source    {letter.source}{at}" if letter.source else "source    names no topic")
    click.echo(f"replay    {'done already' if done else _fate(order)}")
    if isinstance(order.record, Restored) and order.record.whole:
        click.echo(f"key       {order.record.key!r}")
        click.echo(f"headers   {order.record.headers!r}")
        click.echo(f"record    {order.record.value!r}")
    else:
        click.echo(f"letter    {letter.value!r}")


@dead_letters.command()
@_chosen
@click.option("--to", default="", help="send to this topic, not to the one that a letter names")
@click.option("--refused", is_flag=True, help="also the records of rows that a sink refused")
@click.option("--yes", is_flag=True, help="do it; without this it is only said what would be done")
def replay(  # noqa: PLR0913 - an option each
    topic: str, kafka: str, since: int | None, reason: str, to: str, *, refused: bool, yes: bool
) -> None:
    """Send the records behind letters again, each letter once, also if this command is killed.

    A record that is still in its topic is sent as it was: key, value, headers, timestamp, partition.
    Otherwise the letter's own payload is sent, if its hash says that it is all of it. Of a refused
    row the whole record is sent again: the job's other rows of that record are repeated.
    """
    if to == topic:
        raise click.UsageError("the letters' own topic is no place for records")
    connection = Connection.of(kafka)
    with _replay(connection, topic, to) as run:
        if yes:
            run.take_over()
        done = run.replayed()
        letters = _letters(connection, topic, since, reason)
        wanted = (letter for letter in letters if letter.at not in done.letters)
        skipped: Counter[str] = Counter()
        sent: Counter[str] = Counter()
        for page in _pages(wanted):
            orders = run.orders([x for x in page if x.of_record or refused])
            sendable = [order for order in orders if order.target is not None]
            skipped["of a refused row: give --refused"] += len(page) - len(orders)
            skipped.update(str(order.record) for order in orders if order.target is None)
            if yes:
                for count in run.send(sendable, done):
                    click.echo(f"{count:>10,}  sent and noted")
            sent.update(_fate(order) for order in sendable)
    for fate, count in sent.most_common():
        click.echo(f"{count:>10,}  {'' if yes else 'would be '}{fate}")
    for why, count in (+skipped).most_common():
        click.echo(f"{count:>10,}  NOT REPLAYABLE: {why}")
    if not yes:
        click.echo("nothing was sent; give --yes to send them")


@contextmanager
def _replay(connection: Connection, topic: str, to: str = "") -> Iterator[Replay]:
    run = Replay(connection, topic, to or None)
    try:
        yield run
    finally:
        run.close()


def _letters(
    connection: Connection, topic: str, since: int | None, reason: str
) -> Iterator[Letter]:
    for letter in read_letters(connection, topic, since):
        if letter.reason.startswith(reason):
            yield letter


def _letter_at(connection: Connection, at: Position) -> Letter:
    reader = CommittedReader(connection)
    try:
        reader.partitions(at.topic)
        for message in reader.pick(at.topic, at.partition, [at.offset]):
            return parsed(message)
    finally:
        reader.close()
    raise click.UsageError(f"there is no letter at {at}; it was deleted, or never was")


def _pages(letters: Iterable[Letter]) -> Iterator[Sequence[Letter]]:
    page: list[Letter] = []
    for letter in letters:
        page.append(letter)
        if len(page) == _PAGE:
            yield page
            page = []
    if page:
        yield page


def _fate(order: Order) -> str:
    if isinstance(order.record, str):
        return f"not possible: {order.record}"
    how = "as it was" if order.record.whole else "from its letter, without key and headers"
    return f"sent to {order.target} {how}"


def _place(letter: Letter) -> str:
    return f"{letter.at.partition}/{letter.at.offset}"


def _short(letter: Letter) -> str:
    source = f"{letter.source} " if letter.source else ""
    payload = (
        letter.payload if letter.payload is not None else letter.value.decode(errors="replace")
    )
    cut = payload[:_EXAMPLE_CHARACTERS]
    return f"{source}{cut!r}{'…' if len(payload) > _EXAMPLE_CHARACTERS else ''}"


def _when(time_ms: int) -> str:
    at = dt.datetime.fromtimestamp(time_ms / 1000, tz=dt.UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S")
