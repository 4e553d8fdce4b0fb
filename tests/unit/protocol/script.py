"""Plays a generator of effects with answers that a test gives, and records the effects."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from sluicegate.protocol.job import Job
from sluicegate.protocol.record import Chunk, EpochRecord, SinkBinding

Answer = Any
"""A value, an exception to raise, a list of these for one call each, or a function of the effect."""

KAFKA = SinkBinding("kafka", "topic t", 1, "L.kafka", cluster="c", durable_markers=True)
MYSQL = SinkBinding("mysql", "table t", 2, "L.mysql")
JOB = Job("j", "L", {"kafka": KAFKA, "mysql": MYSQL}, decide_tries=3, apply_tries=3)


def record(**changes: Any) -> EpochRecord:  # noqa: ANN401 - any field
    """Return a decided epoch 3 of job j, with rows for Kafka's part and one of MySQL's."""
    fields: dict[str, Any] = {
        "lineage": "L",
        "job": "j",
        "epoch": 3,
        "attempt": "a",
        "delivery": "exactly-once",
        "offsets_digest": "d3",
        "sinks": {"kafka": KAFKA, "mysql": MYSQL},
        "prev": {},
        "chunks": (chunk("kafka", 0), chunk("mysql", 1)),
    }
    return EpochRecord(**(fields | changes))


def chunk(sink: str, part: int) -> Chunk:
    """Return a chunk of one row."""
    return Chunk(sink, part, (0, 0), 1, 1, "0", inline=b"x")


class Played:
    """The effects of a generator, in order, and what it returned or raised."""

    def __init__(
        self, steps: Generator[Any, Any, Any], answers: Mapping[type[object], Answer]
    ) -> None:
        self.effects: list[Any] = []
        self.result: Any = None
        self.error: BaseException | None = None
        left = {kind: list(a) if isinstance(a, list) else a for kind, a in answers.items()}
        resume: Callable[[], Any] = lambda: next(steps)  # noqa: E731
        while True:
            try:
                effect = resume()
            except StopIteration as end:
                self.result = end.value
                return
            except Exception as error:  # noqa: BLE001 - the test checks it
                self.error = error
                return
            self.effects.append(effect)
            answer = left.get(type(effect))
            if isinstance(answer, list):
                answer = answer.pop(0)
            elif callable(answer):
                answer = answer(effect)
            if isinstance(answer, Exception):
                resume = lambda e=answer: steps.throw(e)  # type: ignore[misc] # noqa: E731
            else:
                resume = lambda a=answer: steps.send(a)  # type: ignore[misc] # noqa: E731

    @property
    def names(self) -> list[str]:
        """The effects by name; a failpoint by its point."""
        return [getattr(e, "point", type(e).__name__) for e in self.effects]

    def only(self, kind: type[Any]) -> list[Any]:
        """Return the effects of a kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]
