"""Adds a column of answers to Arrow batches.

Requests for later batches are sent ahead, so that the store is not idle between batches.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.errors import SchemaMismatch
from sluicegate.lookups.fetcher import KeyFetcher, NoAnswer
from sluicegate.lookups.settings import LookupSettings
from sluicegate.lookups.worker import LoopThread, worker_state

log = logging.getLogger("sluicegate.lookup")

_BATCHES_IN_FLIGHT = 4
"""How many batches of a task are requested at once, and so held in memory."""

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class LookupPlan:
    """The description of a lookup that travels to its tasks.

    Args:
        client: pickled, so that a worker recognizes a client that it has already opened.
        settings: of the lookup.
        key: the column of keys.
        answer: the Arrow type of the answers.
        refused: the column for the reason why a row becomes a dead letter; None: no such column. If
            the column exists, its reasons stay.
    """

    client: bytes
    settings: LookupSettings
    key: str
    answer: pa.DataType
    refused: str | None

    @property
    def identity(self) -> str:
        """Equal for tasks that may share connections and a cache."""
        return hashlib.sha256(self.client + repr(self.settings).encode()).hexdigest()

    def create_fetcher(self) -> KeyFetcher:
        """Return a new fetcher."""
        return KeyFetcher(pickle.loads(self.client), self.settings)  # noqa: S301 - pickled by us


def lookup_function(plan: LookupPlan) -> Callable[[Batches], Batches]:
    """Return the function that Spark runs over each partition."""

    def look_up(batches: Batches) -> Iterator[pa.RecordBatch]:
        state = worker_state()
        fetcher = state.fetcher(plan.identity, plan.create_fetcher)
        yield from BatchLookup(plan, fetcher, state.loop).run(batches)

    return look_up


Pending = tuple[pa.RecordBatch, "Future[dict[Any, Any]]"]


class BatchLookup:
    """The lookups of one task."""

    def __init__(self, plan: LookupPlan, fetcher: KeyFetcher, loop: LoopThread) -> None:
        self._plan, self._fetcher, self._loop = plan, fetcher, loop

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield each batch with its answers, in order or as the answers arrive."""
        pending: list[Pending] = []
        source = iter(batches)
        try:
            while True:
                missing = _BATCHES_IN_FLIGHT - len(pending)
                pending.extend(self._send(batch) for batch in islice(source, missing))
                if not pending:
                    break
                batch, answers = pending.pop(self._next(pending))
                yield self._with_answers(batch, answers.result())
        finally:
            for _, answers in pending:
                answers.cancel()

    def _send(self, batch: pa.RecordBatch) -> Pending:
        unique = _python_keys(pc.unique(batch.column(self._plan.key)).drop_null())
        keys = [key for key in unique if not isinstance(key, NoAnswer)]
        return batch, self._loop.submit(self._fetcher.fetch(keys))

    def _next(self, pending: list[Pending]) -> int:
        """Return the index of the next batch to yield."""
        if self._plan.settings.mode == "ordered":
            return 0
        wait([answers for _, answers in pending], return_when=FIRST_COMPLETED)
        return next(i for i, (_, answers) in enumerate(pending) if answers.done())

    def _with_answers(self, batch: pa.RecordBatch, answers: dict[Any, Any]) -> pa.RecordBatch:
        keys = batch.column(self._plan.key).dictionary_encode()
        values = [
            key if isinstance(key, NoAnswer) else answers[key]
            for key in _python_keys(keys.dictionary)
        ]
        column = self._to_arrow([None if isinstance(v, NoAnswer) else v for v in values])
        batch = batch.append_column(self._plan.settings.into, column.take(keys.indices))
        reasons = pa.array(
            [v.reason if isinstance(v, NoAnswer) else None for v in values], pa.string()
        )
        unanswered = len(reasons) - reasons.null_count
        if unanswered:
            log.warning("%d keys of a batch: %s", unanswered, reasons.drop_null()[0])
        return self._with_reasons(batch, reasons.take(keys.indices))

    def _to_arrow(self, values: list[Any]) -> pa.Array:
        try:
            return pa.array(values, self._plan.answer)
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeError) as error:
            raise SchemaMismatch(
                f"lookup into {self._plan.settings.into}: an answer is not of type "
                f"{self._plan.answer}: {error}",
                data="the epoch is undecided; no sink shows any of it, and nothing is lost",
                do="correct the store, or the client's answer type",
            ) from error

    def _with_reasons(self, batch: pa.RecordBatch, reasons: pa.Array) -> pa.RecordBatch:
        """Add the reasons; those of an earlier lookup take precedence."""
        name = self._plan.refused
        if name is None:
            return batch
        index = batch.schema.get_field_index(name)
        if index < 0:
            return batch.append_column(name, reasons)
        earlier = batch.column(index)
        return batch.set_column(index, name, pc.coalesce(earlier, reasons.cast(earlier.type)))


def _python_keys(keys: pa.Array) -> list[Any]:
    """Return keys as Python objects, NoAnswer for a key that Python cannot represent."""
    try:
        converted: list[Any] = keys.to_pylist()
    except (ValueError, OverflowError):
        return [_python_key(key) for key in keys]
    return converted


def _python_key(key: pa.Scalar) -> object:
    try:
        return key.as_py()
    except (ValueError, OverflowError) as error:  # text that is not UTF-8, a year beyond 9999
        return NoAnswer(f"the key is not a valid {key.type}: {error}")
