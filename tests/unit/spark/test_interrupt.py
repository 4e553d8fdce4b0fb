"""Ctrl-C while a query is awaited."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from sluicegate.spark.interrupt import first_interrupt


@pytest.fixture(autouse=True)
def _default_handler() -> Iterator[None]:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def test_the_first_interrupt_is_only_recorded_and_the_second_raises() -> None:
    with first_interrupt() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_afterwards_the_former_handler_is_back() -> None:
    with first_interrupt():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_user_stays() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: seen.append(number))
    with first_interrupt() as interrupted:
        signal.raise_signal(signal.SIGINT)
        assert not interrupted()
    assert seen == [signal.SIGINT]


def test_another_thread_installs_no_handler() -> None:
    handlers: list[object] = []

    def wait() -> None:
        with first_interrupt():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]
