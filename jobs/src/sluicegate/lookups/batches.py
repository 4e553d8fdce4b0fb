"""Arrow batches in, the same batches with a column of answers out.

Batches are sent ahead of the one that is waited for, so that the store is never idle between
two. Not here: Spark. Called in the tasks, through `answered_by`.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.lookups.asking import Asker, NoAnswer
from sluicegate.lookups.client import LookupClient
from sluicegate.lookups.loop import LoopThread, kept
from sluicegate.lookups.settings import LookupSettings
from sluicegate.protocol.errors import SchemaMismatch

log = logging.getLogger("sluicegate.lookup")

_AHEAD = 4
"""How many batches of a task are asked for at once, and so held in memory."""

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class LookupOrder:
    """What every task of a lookup is told; travels with the task.

    Args:
        client: pickled, so that a worker can tell whether it has opened it already.
        settings: of the lookup.
        key: the column that is looked up.
        answer: the Arrow type of the answers.
        refused: the column for the reason why a row is to be a dead letter; None: no such column.
            One that is there keeps the reasons that it has.
    """

    client: bytes
    settings: LookupSettings
    key: str
    answer: pa.DataType
    refused: str | None

    @property
    def identity(self) -> str:
        """Equal for tasks that may share connections and cache."""
        return hashlib.sha256(self.client + repr(self.settings).encode()).hexdigest()

    def asker(self) -> Asker:
        """Return a new asker."""
        client: LookupClient = pickle.loads(self.client)  # noqa: S301 - pickled by the driver
        return Asker(client, self.settings)


def answered_by(order: LookupOrder) -> Callable[[Batches], Batches]:
    """Return the function that Spark runs over each partition."""

    def answered(batches: Batches) -> Iterator[pa.RecordBatch]:
        here = kept()
        asker = here.asker(order.identity, order.asker)
        yield from BatchLookup(order, asker, here.loop).run(batches)

    return answered


Sent = tuple[pa.RecordBatch, "Future[dict[Any, Any]]"]


class BatchLookup:
    """The lookups of one task."""

    def __init__(self, order: LookupOrder, asker: Asker, loop: LoopThread) -> None:
        self._order, self._asker, self._loop = order, asker, loop

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield each batch with its answers: in order, or as the answers arrive."""
        pending: list[Sent] = []
        source = iter(batches)
        more = True
        try:
            while more or pending:
                while more and len(pending) < _AHEAD:
                    batch = next(source, None)
                    if batch is None:
                        more = False
                    else:
                        pending.append(self._send(batch))
                if pending:
                    batch, answers = pending.pop(self._next(pending))
                    yield self._with_answers(batch, answers.result())
        finally:
            for _, left in pending:
                left.cancel()

    def _send(self, batch: pa.RecordBatch) -> Sent:
        keys = pc.unique(batch.column(self._order.key)).drop_null().to_pylist()
        return batch, self._loop.submit(self._asker.ask(keys))

    def _next(self, pending: list[Sent]) -> int:
        """Return which batch leaves next."""
        if self._order.settings.mode == "ordered":
            return 0
        wait([answers for _, answers in pending], return_when=FIRST_COMPLETED)
        return next(i for i, (_, answers) in enumerate(pending) if answers.done())

    def _with_answers(self, batch: pa.RecordBatch, answers: dict[Any, Any]) -> pa.RecordBatch:
        keys = batch.column(self._order.key).dictionary_encode()
        given = [answers[key] for key in keys.dictionary.to_pylist()]
        reasons = [a.reason if isinstance(a, NoAnswer) else None for a in given]
        column = self._answers([None if isinstance(a, NoAnswer) else a for a in given])
        done = batch.append_column(self._order.settings.into, column.take(keys.indices))
        why = pa.array(reasons, pa.string())
        if why.null_count < len(why):
            log.warning("%d keys of a batch: %s", len(why) - why.null_count, why.drop_null()[0])
        return self._refusing(done, why.take(keys.indices))

    def _answers(self, values: list[Any]) -> pa.Array:
        try:
            return pa.array(values, self._order.answer)
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeError) as error:
            raise SchemaMismatch(
                f"lookup into {self._order.settings.into}: an answer is no "
                f"{self._order.answer}: {error}",
                data="the epoch is undecided, nothing of it is visible in any sink, nothing is lost",
                do="correct the store, or the client's answer type",
            ) from error

    def _refusing(self, batch: pa.RecordBatch, why: pa.Array) -> pa.RecordBatch:
        """Add the reasons, behind those of a lookup before this one."""
        name = self._order.refused
        if name is None:
            return batch
        at = batch.schema.get_field_index(name)
        if at < 0:
            return batch.append_column(name, why)
        before = batch.column(at)
        return batch.set_column(at, name, pc.coalesce(before, why.cast(before.type)))
