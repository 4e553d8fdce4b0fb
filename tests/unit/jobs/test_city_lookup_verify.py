"""Verification of city_lookup finds every kind of error, and only errors."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

import pytest

from sluicegate.sinks.kafka.reader import Record
from sluicegate.sinks.mysql.column_types import Column, Family
from sluicegate_jobs.city_lookup.verify import Answers, Located, Source, compare
from sluicegate_jobs.verification.epoch_log import SourceRecords
from sluicegate_jobs.verification.limits import SinkLimits, TableLimits

TOPIC, MYSQL = "ids", "mysql.t"
UNKNOWN = "unknown: hash cities has no id x"
X: Source = (0, 1)


def letter(at: Source, reason: str, payload: str) -> dict[str, object]:
    """Return a dead letter about a record."""
    return {
        "reason": reason,
        "payload": payload,
        "payload_sha256": hashlib.sha256(payload.encode()).hexdigest(),
        "source": {"topic": TOPIC, "partition": at[0], "offset": at[1]},
    }


@dataclass
class World:
    """Four ids that were read, one of which is a dead letter, and one that was not read yet."""

    source: dict[Source, str] = field(
        default_factory=lambda: {(0, 0): "1", X: "x", (1, 0): "2", (1, 1): "3", (1, 2): "4"}
    )
    kafka: list[Located] = field(
        default_factory=lambda: [
            Located((0, 0), "1", "Kyiv"),
            Located((1, 0), "2", "Bern"),
            Located((1, 1), "3", "Lima"),
        ]
    )
    letters: list[dict[str, object]] = field(default_factory=lambda: [letter(X, UNKNOWN, "x")])
    answers: Answers = field(default_factory=lambda: Answers("cities"))

    def __post_init__(self) -> None:
        self.mysql = list(self.kafka)

    def kinds(self) -> list[str]:
        records = [Record(*at, key=None, value=id_.encode()) for at, id_ in self.source.items()]
        letters = (json.dumps(each).encode() for each in self.letters)
        id_column = Column("id", "varchar(10)", Family.TEXT, "varchar", chars=10)
        limits = SinkLimits(tables={MYSQL: TableLimits({"id": id_column}, 1 << 20)})
        read = SourceRecords(TOPIC, records, {0: 2, 1: 2})
        outcome = compare(read, self.kafka, self.mysql, letters, self.answers, limits)
        return [finding.kind for finding in outcome.findings]


@pytest.fixture
def world() -> World:
    """Return a world without errors."""
    return World()


def test_a_correct_result_has_no_findings(world: World) -> None:
    assert world.kinds() == []


def test_a_row_that_a_sink_lacks_is_lost(world: World) -> None:
    world.mysql.pop()
    assert world.kinds() == ["lost"]


def test_a_missing_dead_letter_is_lost(world: World) -> None:
    world.letters.clear()
    assert world.kinds() == ["lost"]


def test_a_repeated_record_is_duplicated(world: World) -> None:
    world.kafka.append(world.kafka[0])
    assert world.kinds() == ["duplicated"]


def test_a_repeated_dead_letter_is_duplicated(world: World) -> None:
    world.letters *= 2
    assert world.kinds() == ["duplicated"]


def test_sinks_with_different_answers_are_wrong(world: World) -> None:
    world.mysql[0] = Located((0, 0), "1", "Kiew")
    assert world.kinds() == ["wrong"]


def test_a_row_in_a_sink_and_in_a_dead_letter_is_wrong(world: World) -> None:
    world.kafka.append(Located((0, 1), "x", "Oslo"))
    assert world.kinds() == ["wrong"]


def test_a_row_without_a_record_is_wrong(world: World) -> None:
    world.mysql.append(Located((7, 0), "1", "Kyiv"))
    assert world.kinds() == ["wrong"]


def test_a_row_of_an_unread_record_is_undecided(world: World) -> None:
    world.kafka.append(Located((1, 2), "4", "Rome"))
    assert world.kinds() == ["undecided-but-visible"]


def test_a_dead_letter_of_an_unread_record_is_undecided_once(world: World) -> None:
    world.letters.append(letter((1, 2), "unknown: hash cities has no id 4", "4"))
    assert world.kinds() == ["undecided-but-visible"]


def refused(id_: str) -> dict[str, object]:
    """Return the dead letter of a row that MySQL refused: it has the columns of each sink."""
    row = {"source_partition": 0, "source_offset": 1, "id": id_}
    staged = [{"key": id_, "value": json.dumps(row)}, {"id": id_}]
    return {"reason": f"refused by {MYSQL}: too long", "payload": json.dumps(staged)}


def test_the_source_of_a_refused_row_is_in_its_staged_columns(world: World) -> None:
    world.source[X] = "x" * 11
    world.letters = [refused("x" * 11)]
    assert world.kinds() == []


def test_a_refused_row_that_the_sink_accepts_is_wrong(world: World) -> None:
    world.letters = [refused("x")]
    assert world.kinds() == ["wrong"]


def test_a_dead_letter_about_nothing_is_wrong(world: World) -> None:
    world.letters.append({"reason": "odd", "payload": "[]"})
    assert world.kinds() == ["wrong"]


def test_an_id_is_no_dead_letter_for_the_reason_that_the_record_has_none(world: World) -> None:
    world.letters = [letter(X, "empty: the record has no id", "x")]
    assert world.kinds() == ["lost", "wrong"]


def test_a_record_without_an_id_is_a_dead_letter(world: World) -> None:
    world.source[X] = " "
    world.letters = [letter(X, "empty: the record has no id", " ")]
    assert world.kinds() == []


def test_a_dead_letter_that_names_another_id_is_wrong(world: World) -> None:
    world.letters = [letter(X, "unknown: hash cities has no id y", "x")]
    assert world.kinds() == ["lost", "wrong"]


def test_a_dead_letter_with_the_payload_of_another_record_is_wrong(world: World) -> None:
    world.letters = [letter(X, UNKNOWN, "y")]
    assert world.kinds() == ["wrong"]


@pytest.mark.parametrize(("may_be_missing", "kinds"), [(True, []), (False, ["lost", "wrong"])])
def test_an_id_without_an_answer_is_a_dead_letter_only_if_the_job_is_set_to_that(
    world: World, *, may_be_missing: bool, kinds: list[str]
) -> None:
    world.answers = Answers("cities", may_be_missing=may_be_missing)
    world.letters = [letter(X, "lookup into city: unanswered after 3 attempts of 1 s ()", "x")]
    assert world.kinds() == kinds
