"""Events about a job that a person acts on link to the console, if its address is known."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate_operator.api.locations import console_page
from sluicegate_operator.kube.events import MAX_LENGTH
from sluicegate_operator.reconcile.actions import EmitEvent
from tests.unit.operator.builders import requested
from tests.unit.operator.controllers.test_streaming_job import KEY, Shop

CONSOLE = "https://console.example.com/"
PAGE = "https://console.example.com/find?checkpoint=s3%3A%2F%2Fdata%2Fsluice%2Fclicks%2F1"
FAILED = EmitEvent("DriverFailed", "attempt 3 failed with exit code 1", warning=True)


def emitted(shop: Shop, event: EmitEvent) -> str:
    """Return the message of the Event that a job gets."""
    asyncio.run(shop.controller._emit_event(KEY, event))
    return shop.api.messages[-1]


@pytest.fixture
def shop() -> Shop:
    """Return a job that has had a driver, and an operator that knows the console."""
    shop = Shop(status=requested())
    shop.controller.console_url = CONSOLE
    return shop


def test_a_warning_ends_with_the_page_of_the_jobs_checkpoint(shop: Shop) -> None:
    assert emitted(shop, FAILED) == f"{FAILED.message}; console: {PAGE}"


def test_the_link_to_a_moved_job_is_that_of_its_present_checkpoint(shop: Shop) -> None:
    shop.edit({}, status={"checkpoint": {"number": 7}})
    assert emitted(shop, FAILED).endswith("clicks%2F7")


def test_an_event_that_asks_nobody_to_act_has_no_link(shop: Shop) -> None:
    assert emitted(shop, EmitEvent("Upgrading", "the spec has changed")) == "the spec has changed"


def test_a_job_without_a_driver_has_no_page_yet() -> None:
    shop = Shop()
    shop.controller.console_url = CONSOLE
    assert emitted(shop, FAILED) == FAILED.message


def test_without_the_address_of_a_console_nothing_is_added() -> None:
    assert emitted(Shop(status=requested()), FAILED) == FAILED.message


def test_a_long_message_is_cut_and_not_its_link(shop: Shop) -> None:
    message = emitted(shop, EmitEvent("DriverFailed", "x" * 5_000, warning=True))
    assert len(message) == MAX_LENGTH
    assert message.endswith(f"x; console: {PAGE}")


def test_the_address_of_a_checkpoint_is_one_value_of_the_query() -> None:
    page = console_page("http://console/team", "s3://bucket/a&b=c d/1")
    assert page == "http://console/team/find?checkpoint=s3%3A%2F%2Fbucket%2Fa%26b%3Dc%20d%2F1"
