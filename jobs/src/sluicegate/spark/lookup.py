"""`lookup`: adds a column of answers that the executors fetch from a store (`sluicegate.lookups`)."""

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

from sluicegate.errors import LookupUnanswered, SettingsInvalid
from sluicegate.lookups.batches import LookupPlan, lookup_function
from sluicegate.lookups.client import AskEach, CheckedClient, LookupClient
from sluicegate.lookups.settings import Cache, LookupSettings, Mode, OnTimeout
from sluicegate.lookups.worker import LoopThread
from sluicegate.sinks.reserved_columns import REFUSED

log = logging.getLogger("sluicegate.lookup")

_KEYS = (T.StringType, T.IntegralType, T.BinaryType)


def lookup(  # noqa: PLR0913 - keyword arguments, one for each setting
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
    """Return the rows with a new column: what a store has for the value of a column.

    Each key of an Arrow batch is fetched once, in requests of several keys, with several requests in
    flight. A key that the store does not have gives null, and so does a null. The answers of a decided
    epoch are staged like the rest of the row, so a replay cannot change them. An undecided epoch is
    looked up again and may get newer answers.

    The load on the store is at most capacity x running tasks requests at once, each of the client's
    `keys_per_request` keys; each source partition or shuffle partition is a task. A batch of n keys
    that nobody answers takes at most about ceil(n / keys_per_request / capacity) x (retries + 1) x
    timeout_s, which must fit into the epoch's timeout.

    A watermark does not pass through: call `withWatermark` on the result.

    Args:
        rows: streaming or not.
        key: the column to look up: string, integer or binary.
        client: the store: `RedisHash`, `RedisKeys`, an `AskEach`, anything that implements
            `sluicegate.lookups.client.LookupClient`, or an async function of a key that returns
            text. Must be picklable; each Python worker opens it once.
        into: the name of the new column; its type is the client's `answer`.
        mode: 'ordered': rows keep their order; 'unordered': the Arrow batches of a task (of
            spark.sql.execution.arrow.maxRecordsPerBatch rows) leave as soon as they are answered.
        capacity: number of requests in flight per task; default 8.
        timeout_s: of one request, in seconds; default 1.
        retries: number of retries of a request that was not answered, or failed with a
            ConnectionError or another OSError; default 2. Pauses between them grow from 50 ms to
            2 s, with jitter.
        on_timeout: what happens to rows whose request was never answered. 'fail' (default): the
            epoch fails, undecided. 'null': the answer is null. 'dead-letter': the answer is null
            and the row is refused with the reason in the column `__refused`, which must reach the
            sinks' output: keep it in a select.
        cache: caches answers in each worker; off by default. Answers are then up to `ttl_s` old.

    Raises:
        SettingsInvalid: an argument is invalid.
        PreflightFailed: or a subclass: the store responded and can never answer.
        LookupUnanswered: the store does not respond, and on_timeout is 'fail'.
    """
    settings = LookupSettings(into, mode, capacity, timeout_s, retries, on_timeout, cache)
    used_client = _client(client, settings)
    _check_columns(rows, key, settings)
    try:
        pickled: bytes = cloudpickle.dumps(used_client)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise _invalid(settings, f"the client cannot be pickled: {error}") from error
    _check(pickled, settings)
    try:
        answer = T.DataType.fromDDL(used_client.answer)
    except Exception as error:
        what = f"answer={used_client.answer!r} is not a Spark type: {error}"
        raise _invalid(settings, what) from error
    refuses = on_timeout == "dead-letter"
    fields = [*rows.schema.fields, T.StructField(into, answer)]
    if refuses and REFUSED not in rows.columns:
        fields.append(T.StructField(REFUSED, T.StringType()))
    plan = LookupPlan(
        client=pickled,
        settings=settings,
        key=key,
        answer=to_arrow_type(answer),
        refused=REFUSED if refuses else None,
    )
    return rows.mapInArrow(lookup_function(plan), T.StructType(fields))


def _client(given: object, settings: LookupSettings) -> LookupClient:
    if inspect.iscoroutinefunction(given):
        return AskEach(given)
    if inspect.isroutine(given):
        raise _invalid(settings, "the client is a plain function; make it `async def`")
    return cast("LookupClient", given)


def _check_columns(rows: DataFrame, key: str, settings: LookupSettings) -> None:
    if key not in rows.columns:
        names = ", ".join(rows.columns)
        raise _invalid(settings, f"key={key!r} names no column; there are {names}")
    kind = rows.schema[key].dataType
    if not isinstance(kind, _KEYS):
        what = f"key={key!r} has type {kind.simpleString()}; cast it to string, bigint or binary"
        raise _invalid(settings, what)
    if settings.into in rows.columns:
        raise _invalid(settings, f"into={settings.into!r} is a column already")


def _check(pickled: bytes, settings: LookupSettings) -> None:
    """Let a copy of the client check the store before anything starts."""
    client = pickle.loads(pickled)  # noqa: S301 - pickled above, as the worker's copy
    if not isinstance(client, CheckedClient):
        return

    async def check() -> None:
        async with asyncio.timeout(settings.timeout_s * (settings.retries + 1)):
            await client.open()
            try:
                await client.check()
            finally:
                await client.close()

    loop = LoopThread()  # this thread may already run an event loop, as in a notebook
    try:
        loop.submit(check()).result()
    except OSError as error:
        if settings.on_timeout != "fail":
            log.warning("lookup into %s: the store does not answer: %r", settings.into, error)
            return
        raise LookupUnanswered(
            f"lookup into {settings.into}: the store does not answer: {str(error) or 'timeout'}",
            data="nothing was read or written",
            do="start the store, or correct its address",
        ) from error
    finally:
        loop.close()


def _invalid(settings: LookupSettings, what: str) -> SettingsInvalid:
    what = f"lookup into {settings.into}: {what}"
    return SettingsInvalid(what, data="nothing was started", do="correct the argument")
