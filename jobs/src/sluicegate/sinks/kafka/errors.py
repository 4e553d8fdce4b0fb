"""Translates errors of librdkafka into Sluicegate's errors, which say what they mean for the data.

Errors are distinguished by name (`KafkaError.name()`): the names are those of Kafka's and
librdkafka's documentation. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException

from sluicegate.errors import (
    AccessDenied,
    SinkRejected,
    SinkUnavailable,
    SluicegateError,
    TargetMissing,
)

_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
"""Another producer has initialized this transactional id; the name depends on the request."""

_PURGED = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})
"""Not a cause: the error of the remaining records once a transaction must be aborted."""

TRANSIENT = frozenset(
    {
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "UNSTABLE_OFFSET_COMMIT",
        "_WAIT_COORD",
        "_TRANSPORT",
    }
)
"""Ends by itself: a coordinator moves or loads, or the cluster creates its offsets topic."""

_SILENCE = frozenset(
    {
        "_TIMED_OUT",
        "_MSG_TIMED_OUT",
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "REQUEST_TIMED_OUT",
    }
)

_REJECTED = frozenset(
    {
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "INVALID_MSG",
        "INVALID_MSG_SIZE",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "POLICY_VIOLATION",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "UNKNOWN_TOPIC_OR_PART",
        "OFFSET_METADATA_TOO_LARGE",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
    }
)
_DENIED = frozenset(
    {
        "_AUTHENTICATION",
        "_SSL",
        "ILLEGAL_SASL_STATE",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "SECURITY_DISABLED",
    }
)


class Undelivered(Exception):
    """Records of a transaction were not delivered; `flush` itself does not report it."""

    def __init__(self, error: KafkaError, count: int) -> None:
        self.error, self.count = error, count
        super().__init__(f"{count} records were not delivered, first: {describe(error)}")


def error_of(raised: KafkaException | Undelivered) -> KafkaError:
    """Return librdkafka's error inside an exception."""
    if isinstance(raised, Undelivered):
        return raised.error
    error = raised.args[0]
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError.UNKNOWN)


def describe(error: KafkaError) -> str:
    """Return the error as one line: the description, then the name to search for."""
    return f"{error.str()} ({error.name()})"


def is_fenced(raised: KafkaException | Undelivered) -> bool:
    """Return whether another producer has taken the part over."""
    return error_of(raised).name() in _FENCED


def is_fatal(raised: KafkaException) -> bool:
    """Return whether librdkafka only says that the producer has a fatal error, not which."""
    return error_of(raised).name() == "_FATAL"


def is_definite(raised: KafkaException | Undelivered) -> bool:
    """Return whether the broker answered; then an abort does not have to wait for it."""
    error = error_of(raised)
    return not error.fatal() and error.name() not in _SILENCE


def is_silence(name: str) -> bool:
    """Return whether an error means that a broker does not answer, or is out of reach."""
    return name in _SILENCE


def is_denial(name: str) -> bool:
    """Return whether an error of this name means that the server refused the user."""
    return name in _DENIED or name.endswith("AUTHORIZATION_FAILED")


def root_cause(errors: Sequence[KafkaError]) -> KafkaError | None:
    """Return the first error that is a cause, else the first one, None without errors."""
    causes = (error for error in errors if error.name() not in _PURGED)
    return next(causes, errors[0] if errors else None)


def apply_error(raised: KafkaException | Undelivered, where: str, doing: str) -> SluicegateError:
    """Return what an error during an apply means: SinkUnavailable (in doubt) or SinkRejected.

    Args:
        raised: by librdkafka.
        where: topic and part.
        doing: the step that failed, such as 'committing'.
    """
    error = error_of(raised)
    reason = str(raised) if isinstance(raised, Undelivered) else describe(error)
    what = f"{where}: {doing} failed: {reason}"
    if error.name() in _REJECTED or is_denial(error.name()):
        do = (
            "change the topic or the user's rights so that the topic accepts these rows (limit, policy, "
            "existence)"
        )
        if error.name() == "INVALID_TIMESTAMP":
            do = (
                "check the clocks of driver, executors and brokers, then the topic's limits: a record's "
                "time may be ahead of the broker's by message.timestamp.after.max.ms, an hour by default, "
                "and behind it by message.timestamp.before.max.ms"
            )
        return SinkRejected(
            what,
            data="the transaction was aborted: none of its rows is visible; the epoch stays decided",
            do=do,
        )
    return SinkUnavailable(
        what,
        data="the transaction is committed as a whole or not at all; the next attempt reads the marker",
        do="nothing if the broker comes back: the apply is repeated; otherwise check the broker's log",
    )


class MarkerPending(SinkUnavailable):
    """A marker could not be read in time: a transaction of the part is still open."""


def marker_pending(raised: KafkaException, where: str) -> MarkerPending:
    """Return the error of a marker that cannot be read in time."""
    return MarkerPending(
        f"{where} is pending: {describe(error_of(raised))}",
        data="a transaction of this part is neither committed nor aborted yet, or the broker is silent",
        do="wait for the broker; if that does not help, a transaction hangs: find and abort it with "
        "kafka-transactions.sh find-hanging, in the topic and in __consumer_offsets; then the apply "
        "is repeated",
    )


def startup_error(error: KafkaError, address: str, doing: str) -> SluicegateError:
    """Return what an error before the job starts means: denied, missing or unavailable.

    Args:
        error: from librdkafka.
        address: the brokers.
        doing: the step that failed, such as 'reading topic clicks'.
    """
    what = f"Kafka at {address}: {doing} failed: {describe(error)}"
    if is_denial(error.name()):
        return AccessDenied(
            what,
            data="nothing was read or written",
            do="check user, password and protocol in the sink's config=, and the user's ACLs: "
            "Write on the topic, Read and Write on sluicegate.markers, Read on groups and Write on "
            "transactional ids that begin with 'sluicegate.', DescribeConfigs on topics and cluster",
        )
    if error.name() in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"}:
        return TargetMissing(
            what, data="nothing was written", do="create the topic, then start the job again"
        )
    return SinkUnavailable(
        what,
        data="nothing was written",
        do=f"start Kafka, or correct the address {address} (bootstrap= or SLUICEGATE_KAFKA)",
    )
