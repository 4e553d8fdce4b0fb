"""`lookup`: a DataFrame with a column of answers from a store, asked for by the executors.

Not here: how the store is asked (`sluicegate.lookups`), how a row becomes a dead letter
(`outputs.refuse`, `staging`). Called by jobs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import pickle
from collections.abc import Awaitable, Callable
from typing import Any, cast

from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from sluicegate.lookups.batches import LookupOrder, answered_by
from sluicegate.lookups.client import AskEach, CheckedClient, LookupClient
from sluicegate.lookups.loop import LoopThread
from sluicegate.lookups.settings import Cache, LookupSettings, Mode, OnTimeout
from sluicegate.protocol.errors import LookupUnanswered, SettingsInvalid
from sluicegate.spark.outputs import REFUSED

log = logging.getLogger("sluicegate.lookup")

_KEYS = (T.StringType, T.IntegralType, T.BinaryType)


def lookup(  # noqa: PLR0913 - all by keyword, one for each thing a lookup can be told
    rows: DataFrame,
    *,
    key: str,
    client: LookupClient | Callable[[Any], Awaitable[Any]],
    into: str,
    mode: Mode = "ordered",
    capacity: int = 8,
    timeout_s: float = 1.0,
    retries: int = 2,
    on_timeout: OnTimeout = "fail",
    cache: Cache | None = None,
) -> DataFrame:
    """Return the rows with what a store has under a column's value.

    The keys of an Arrow batch are asked for once each, in requests of many keys, with several
    requests in flight. A key that the store does not have, and a null, give null. The answer that
    an epoch was decided with is staged like the rest of the row: a replay cannot change it. An
    epoch that was not decided is asked for again, and may get newer answers.

    The load on the store is at most capacity x running tasks requests at once, each of the
    client's `keys_per_request` keys; a source partition, or a shuffle partition, is a task. A
    batch of n keys that nobody answers takes at most about ceil(n / keys_per_request / capacity)
    x (retries + 1) x timeout_s, which must fit into the epoch's timeout.

    A watermark does not pass through: call `withWatermark` on the result.

    Args:
        rows: streaming or not.
        key: the column to look up: text, whole numbers or binary.
        client: where: `RedisHash`, `RedisKeys`, an `AskEach`, anything like
            `sluicegate.lookups.client.LookupClient`, or an async function of a key that returns
            text. Must be picklable; it is opened once in each Python worker and kept.
        into: the name of the new column; its type is the client's `answer`.
        mode: 'ordered': rows stay in their order; 'unordered': the Arrow batches of a task (of
            spark.sql.execution.arrow.maxRecordsPerBatch rows) leave as they are answered.
        capacity: requests in flight in a task; default 8.
        timeout_s: of one request; default 1 s.
        retries: further tries of a request that had no answer, or met a ConnectionError or another
            OSError; default 2. Pauses between them grow from 50 ms to 2 s, with jitter.
        on_timeout: what becomes of rows whose request had no answer in any try. 'fail' (default):
            the epoch fails, undecided. 'null': the answer is null. 'dead-letter': the answer is
            null and the row is refused with the reason in the column `__refused`, which must
            reach the sinks' output: keep it in a select.
        cache: remember answers in each worker; off by default. Answers are then up to `ttl_s` old.

    Raises:
        SettingsInvalid: an argument that cannot work.
        PreflightFailed: or one of its kinds: the store was asked and can never answer.
        LookupUnanswered: the store is away, and on_timeout is 'fail'.
    """
    settings = LookupSettings(into, mode, capacity, timeout_s, retries, on_timeout, cache)
    made = _client(client, settings)
    _check_columns(rows, key, settings)
    pickled = _pickled(made, settings)
    _check(pickled, settings)
    letters = on_timeout == "dead-letter"
    fields = [*rows.schema.fields, T.StructField(into, _answer_type(made, settings))]
    if letters and REFUSED not in rows.columns:
        fields.append(T.StructField(REFUSED, T.StringType()))
    order = LookupOrder(
        client=pickled,
        settings=settings,
        key=key,
        answer=to_arrow_type(fields[len(rows.columns)].dataType),
        refused=REFUSED if letters else None,
    )
    return rows.mapInArrow(answered_by(order), T.StructType(fields))


def _client(given: object, settings: LookupSettings) -> LookupClient:
    if inspect.iscoroutinefunction(given):
        return AskEach(given)
    if inspect.isroutine(given):
        raise _invalid(settings, "the client is a plain function; make it `async def`")
    return cast("LookupClient", given)


def _check_columns(rows: DataFrame, key: str, settings: LookupSettings) -> None:
    names = rows.columns
    wrong = None
    if key not in names:
        wrong = f"key={key!r} names no column; there are {', '.join(names)}"
    elif not isinstance(rows.schema[key].dataType, _KEYS):
        kind = rows.schema[key].dataType.simpleString()
        wrong = f"key={key!r} has type {kind}; cast it to string, bigint or binary"
    elif settings.into in names:
        wrong = f"into={settings.into!r} is a column already"
    if wrong:
        raise _invalid(settings, wrong)


def _answer_type(client: LookupClient, settings: LookupSettings) -> T.DataType:
    try:
        return T.DataType.fromDDL(client.answer)
    except Exception as error:
        raise _invalid(
            settings, f"answer={client.answer!r} is no type of Spark: {error}"
        ) from error


def _pickled(client: LookupClient, settings: LookupSettings) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(client)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise _invalid(settings, f"the client cannot be pickled: {error}") from error
    return pickled


def _check(pickled: bytes, settings: LookupSettings) -> None:
    """Let a copy of the client look at the store, before anything starts."""
    client = pickle.loads(pickled)  # noqa: S301 - pickled above; the worker's copy comes the same way
    if not isinstance(client, CheckedClient):
        return

    async def check() -> None:
        async with asyncio.timeout(settings.timeout_s * (settings.retries + 1)):
            await client.open()
            try:
                await client.check()
            finally:
                await client.close()

    loop = LoopThread()  # a notebook's own loop may be running in this thread
    try:
        loop.submit(check()).result()
    except OSError as error:
        if settings.on_timeout != "fail":
            log.warning("lookup into %s: the store does not answer: %r", settings.into, error)
            return
        raise LookupUnanswered(
            f"lookup into {settings.into}: the store does not answer: {str(error) or 'no answer in time'}",
            data="nothing was read or written",
            do="start the store, or correct its address",
        ) from error
    finally:
        loop.close()


def _invalid(settings: LookupSettings, what: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"lookup into {settings.into}: {what}",
        data="nothing was started",
        do="correct the argument",
    )
