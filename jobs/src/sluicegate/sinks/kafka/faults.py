"""What an error of librdkafka means for the data, as one of Sluicegate's errors.

Not here: what is done about it; the writer and the preflight decide that. Errors are told apart by
their names (`KafkaError.name()`), which are the words of Kafka's and librdkafka's documentation.
Pure. Called by every module of this package that talks to a broker.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException

from sluicegate.protocol.errors import (
    AccessDenied,
    SinkRejected,
    SinkUnavailable,
    SluicegateError,
    TargetMissing,
)

FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
"""Another producer has taken this transactional id; which of the three depends on the request."""

PURGED = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})
"""Not a cause: what the remaining records of a transaction get once it must be aborted."""

PASSING = frozenset(
    {
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "UNSTABLE_OFFSET_COMMIT",
        "_WAIT_COORD",
        "_TRANSPORT",
    }
)
"""Passes by itself: a coordinator that moves or loads, the first use of a cluster's offsets topic."""

_SILENCE = frozenset(
    {"_TIMED_OUT", "_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "REQUEST_TIMED_OUT"}
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
    """Records of a transaction were not delivered; `flush` itself does not say so."""

    def __init__(self, error: KafkaError, count: int) -> None:
        self.error, self.count = error, count
        super().__init__(f"{count} records were not delivered, first: {said(error)}")


def error_of(raised: KafkaException | Undelivered) -> KafkaError:
    """Return librdkafka's error inside an exception."""
    if isinstance(raised, Undelivered):
        return raised.error
    error = raised.args[0]
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError.UNKNOWN)


def said(error: KafkaError) -> str:
    """Return the error as one line for people: the words, then the name to search for."""
    return f"{error.str()} ({error.name()})"


def is_fenced(error: KafkaError) -> bool:
    """Say whether another producer has taken the part."""
    return error.name() in FENCED


def is_answer(raised: KafkaException | Undelivered) -> bool:
    """Say whether the broker answered, so that an abort will not have to wait for it."""
    error = error_of(raised)
    return not error.fatal() and error.name() not in _SILENCE


def is_denial(name: str) -> bool:
    """Say whether an error of this name means that the server refused the user."""
    return name in _DENIED or name.endswith("AUTHORIZATION_FAILED")


def cause(errors: Iterable[KafkaError]) -> KafkaError | None:
    """Return the first error that is a cause, else the first of all, None if there is none."""
    seen = list(errors)
    return next((e for e in seen if e.name() not in PURGED), seen[0] if seen else None)


def while_applying(raised: KafkaException | Undelivered, where: str, doing: str) -> SluicegateError:
    """Return what an error during an apply means: in doubt, or refused for good.

    Args:
        raised: as librdkafka raised it.
        where: topic and part.
        doing: the step that failed, such as 'committing'.
    """
    error = error_of(raised)
    reason = str(raised) if isinstance(raised, Undelivered) else said(error)
    what = f"{where}: {doing} failed: {reason}"
    if error.name() in _REJECTED or is_denial(error.name()):
        return SinkRejected(
            what,
            data="the transaction was aborted: none of its rows is visible; the epoch stays decided",
            do="change the topic or the rights so that it takes these rows (limit, policy, existence)",
        )
    return SinkUnavailable(
        what,
        data="the transaction is in or it is not, as a whole; the marker tells at the next try",
        do="nothing if the broker comes back: the apply is repeated; else see the broker's log",
    )


class Unsettled(SinkUnavailable):
    """A marker could not be read in time: a transaction of the part is neither in nor out."""


def unsettled(raised: KafkaException, where: str) -> Unsettled:
    """Return what it means that a marker cannot be read in time."""
    return Unsettled(
        f"{where} is not settled: {said(error_of(raised))}",
        data="a transaction of this part is neither in nor aborted yet, or the broker is silent",
        do="wait for the broker; if it lasts, a transaction hangs: kafka-transactions.sh find-hanging "
        "and abort, in the topic and in __consumer_offsets; then the apply is repeated",
    )


def before_start(error: KafkaError, address: str, doing: str) -> SluicegateError:
    """Return what an error of the preflight means.

    Args:
        error: as librdkafka reported it.
        address: the brokers that were asked.
        doing: what was wanted, such as 'reading topic clicks'.
    """
    what = f"Kafka at {address}: {doing} failed: {said(error)}"
    if is_denial(error.name()):
        return AccessDenied(
            what,
            data="nothing was read or written",
            do="check user, password and protocol in the sink's config=, and the user's ACLs: "
            "Write on the topic and on sluicegate.markers, Read on groups and Write on "
            "transactional ids that begin with 'sluicegate.', DescribeConfigs on topic and cluster",
        )
    if error.name() in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"}:
        return TargetMissing(
            what, data="nothing was written", do="create the topic, then start the job again"
        )
    return unreachable(address, what)


def unreachable(address: str, what: str) -> SinkUnavailable:
    """Return the error of a broker that does not answer at all."""
    return SinkUnavailable(
        what,
        data="nothing was written",
        do=f"start Kafka, or correct the address {address} (bootstrap= or SLUICEGATE_KAFKA)",
    )
