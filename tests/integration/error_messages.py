"""Assertions about the errors that users see: each names the cause, the state of the data and the remedy."""

from sluicegate.errors import SluicegateError
from tests.robustness.traffic.ip_count_harness import DriverResult


def assert_message(error: SluicegateError, *texts: str) -> None:
    """Assert that an error has all three parts and contains the texts."""
    assert error.data, error
    assert error.do, error
    for text in texts:
        assert text in str(error), f"{text!r} is not in: {error}"


def assert_driver_error(result: DriverResult, kind: str, *texts: str) -> None:
    """Assert that a driver failed with an error that has all three parts and contains the texts."""
    assert result.code > 0, result.log
    _, separator, message = result.log.partition(f"{kind}: ")
    assert separator, result.log
    for text in (*texts, "\n  data: ", "\n  do: "):
        assert text in message, f"{text!r} is not in: {message}"
    assert "Traceback" not in result.log
