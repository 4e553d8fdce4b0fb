"""The check of city_lookup finds what is wrong, and only that."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from sluicegate_jobs.city_lookup_verify import Located, Where, compare


@dataclass
class World:
    """Four ids that were read, one of them a dead letter, and one that was not read yet."""

    source: dict[Where, str] = field(
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
        found = compare(self.source, self.kafka, self.mysql, letters, {0: 2, 1: 2}).findings
        return [finding.kind for finding in found]


@pytest.fixture
def world() -> World:
    """Give a world in which nothing is wrong."""
    return World()


def test_nothing_is_wrong(world: World) -> None:
    assert world.kinds() == []


def test_a_row_that_a_sink_lacks_is_lost(world: World) -> None:
    world.mysql.pop()
    assert world.kinds() == ["lost"]


def test_a_dead_letter_that_is_not_there_is_lost(world: World) -> None:
    world.letters.clear()
    assert world.kinds() == ["lost"]


def test_a_record_that_is_there_twice_is_duplicated(world: World) -> None:
    world.kafka.append(world.kafka[0])
    assert world.kinds() == ["duplicated"]


def test_a_letter_that_is_there_twice_is_duplicated(world: World) -> None:
    world.letters *= 2
    assert world.kinds() == ["duplicated"]


def test_sinks_with_different_answers_are_wrong(world: World) -> None:
    world.mysql[0] = Located((0, 0), "1", "Kiew")
    assert world.kinds() == ["wrong"]


def test_a_row_in_a_sink_and_in_a_letter_is_wrong(world: World) -> None:
    world.kafka.append(Located((0, 1), "x", "Oslo"))
    assert world.kinds() == ["wrong"]


def test_a_row_of_no_record_is_wrong(world: World) -> None:
    world.mysql.append(Located((7, 0), "1", "Kyiv"))
    assert world.kinds() == ["wrong"]


def test_a_row_beyond_what_was_decided_is_undecided(world: World) -> None:
    world.kafka.append(Located((1, 2), "4", "Rome"))
    assert world.kinds() == ["undecided-but-visible"]


def test_a_letter_of_a_row_that_a_sink_refused_says_where_it_came_from(world: World) -> None:
    staged = [{"key": "x"}, {"source_partition": 0, "source_offset": 1, "id": "x"}]
    world.letters = [{"reason": "refused by mysql.t: too long", "payload": json.dumps(staged)}]
    assert world.kinds() == []


def test_a_letter_about_nothing_is_wrong(world: World) -> None:
    world.letters.append({"reason": "odd", "payload": "[]"})
    assert world.kinds() == ["wrong"]
