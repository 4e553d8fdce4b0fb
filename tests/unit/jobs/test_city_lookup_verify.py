"""Verification of city_lookup finds every kind of error, and only errors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from sluicegate_jobs.city_lookup.verify import Located, Source, compare


@dataclass
class World:
    """Four ids that were read, one of which is a dead letter, and one that was not read yet."""

    source: dict[Source, str] = field(
        default_factory=lambda: {(0, 0): "1", (0, 1): "x", (1, 0): "2", (1, 1): "3", (1, 2): "4"}
    )
    kafka: list[Located] = field(
        default_factory=lambda: [
            Located((0, 0), "1", "Kyiv"),
            Located((1, 0), "2", "Bern"),
            Located((1, 1), "3", "Lima"),
        ]
    )
    letters: list[dict[str, object]] = field(
        default_factory=lambda: [{"reason": "unknown", "source": {"partition": 0, "offset": 1}}]
    )

    def __post_init__(self) -> None:
        self.mysql = list(self.kafka)

    def kinds(self) -> list[str]:
        letters = (json.dumps(letter).encode() for letter in self.letters)
        outcome = compare(self.source, self.kafka, self.mysql, letters, {0: 2, 1: 2})
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


def test_the_source_of_a_refused_row_is_in_its_staged_columns(world: World) -> None:
    staged = [{"key": "x"}, {"source_partition": 0, "source_offset": 1, "id": "x"}]
    world.letters = [{"reason": "refused by mysql.t: too long", "payload": json.dumps(staged)}]
    assert world.kinds() == []


def test_a_dead_letter_about_nothing_is_wrong(world: World) -> None:
    world.letters.append({"reason": "odd", "payload": "[]"})
    assert world.kinds() == ["wrong"]
