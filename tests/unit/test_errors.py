"""Errors: what happened, what it means for the data, what to do, and whether a restart can help."""

from __future__ import annotations

import pickle

import pytest

from sluicegate import errors
from sluicegate.errors import SluicegateError


def family(kind: type[SluicegateError]) -> list[type[SluicegateError]]:
    return [kind, *(grandchild for child in kind.__subclasses__() for grandchild in family(child))]


# only those of the module itself: other packages may define their own
KINDS = [k for k in dict.fromkeys(family(SluicegateError)) if k.__module__ == errors.__name__]
OUTCOMES = {
    "SluicegateError": (False, 1),
    "PreflightFailed": (False, 64),
    "SettingsInvalid": (False, 64),
    "TargetMissing": (False, 64),
    "SchemaMismatch": (False, 64),
    "AccessDenied": (False, 64),
    "StoreUnsafe": (False, 64),
    "TransactionTimeoutInvalid": (False, 64),
    "CheckpointOfAnotherJob": (False, 64),
    "OwnedByAnother": (False, 64),
    "InputChanged": (False, 64),
    "QueryRefused": (False, 64),
    "Fenced": (False, 65),
    "Sealed": (False, 65),
    "OffsetLogDiverged": (False, 66),
    "RecordOfAnotherJob": (False, 66),
    "EpochLogBroken": (False, 66),
    "DecisionUnknown": (True, 1),
    "StoreUnavailable": (True, 1),
    "EpochUnfinished": (True, 1),
    "SavepointInvalid": (False, 64),
    "SavepointFailed": (True, 1),
    "SavepointRefused": (False, 64),
    "SinksStillOwned": (False, 64),
    "StageFailed": (True, 1),
    "ExecutorStopping": (True, 1),
    "StateIncomplete": (False, 1),
    "RowRefused": (False, 1),
    "PartTooLarge": (False, 64),
    "ClockSetBack": (False, 75),
    "EpochTimeout": (False, 75),
    "OutOfMemory": (False, 75),
    "SinkUnavailable": (True, 1),
    "RowsLost": (True, 1),
    "LookupUnanswered": (True, 1),
    "SinkRejected": (False, 1),
    "SinkRegressed": (False, 66),
    "MarkerMismatch": (False, 66),
    "Stuck": (True, 75),
}
"""Error -> retryable, exit code. Supervisors act on the second: a change here changes the operator."""


def test_every_error_has_a_stated_outcome() -> None:
    assert {k.__name__: (k.retryable, k.exit_code) for k in KINDS} == OUTCOMES


@pytest.mark.parametrize("kind", KINDS)
def test_the_message_says_what_then_data_then_what_to_do(kind: type[SluicegateError]) -> None:
    message = str(kind("it broke", data="nothing is lost", do="fix it"))
    assert message == "it broke\n  data: nothing is lost\n  do: fix it"


def test_empty_parts_are_left_out() -> None:
    assert str(SluicegateError("it broke")) == "it broke"


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_pickling(kind: type[SluicegateError]) -> None:
    sent = kind("it broke", data="nothing is lost", do="fix it")
    received = pickle.loads(pickle.dumps(sent))  # noqa: S301 - our own bytes
    assert type(received) is kind
    assert (received.what, received.data, received.do) == (sent.what, sent.data, sent.do)
    assert str(received) == str(sent)


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_says_when_it_is_raised(kind: type[SluicegateError]) -> None:
    assert kind is SluicegateError or (kind.__doc__ or "").startswith("Raised ")


def test_a_fenced_driver_must_not_be_restarted() -> None:
    assert not errors.Fenced.retryable
