"""How pages are served: made once for all viewers, in the background, and as a stream of changes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from sluicegate.console import app
from sluicegate.console.app import LOCAL_NAMES, create_app
from sluicegate.console.model import JobFacts
from sluicegate.console.reader import Reader
from sluicegate.storage.driver_failure import DriverFailure, write_failure
from tests.unit.console.browser import finished, request, scope

KILLED = DriverFailure(1, 2.5, -9)


def test_a_page_that_has_not_changed_is_not_sent_again(
    tmp_path: Path, console: ASGIApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = finished(tmp_path, "same", 1)
    shown = {path: request(console, path) for path in ("/", "/job/same")}
    later = app._now_ms() + 7_000
    monkeypatch.setattr(app, "_now_ms", lambda: later)
    for path, answer in shown.items():
        again = request(console, path, if_none_match=answer.headers["etag"])
        assert (again.status, again.body) == (304, ""), "only ages differ, which the browser counts"
    write_failure(store.url, DriverFailure(1, 2.5, 75))
    etag = shown["/job/same"].headers["etag"]
    assert request(console, "/job/same", if_none_match=etag).status == 200


def test_a_page_is_made_once_for_all_who_look_at_it(tmp_path: Path, apps: list[Reader]) -> None:
    store = finished(tmp_path, "seen", 1)
    apps.append(Reader([str(tmp_path)]))
    console = create_app(apps[0], hosts=LOCAL_NAMES, refresh_s=600.0, wait_s=30.0)
    first = request(console, "/job/seen")
    store.delete("lineage.json")
    assert request(console, "/job/seen").body == first.body


def test_jobs_that_are_still_being_read_do_not_delay_the_others(
    tmp_path: Path, apps: list[Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(tmp_path, "quick", 1)
    finished(tmp_path, "slow", 1)
    apps.append(Reader([str(tmp_path)]))
    answers = threading.Event()
    read = apps[0].briefs

    def hanging(*given: Any, **named: Any) -> Iterator[JobFacts]:  # noqa: ANN401 - handed on
        for facts in read(*given, **named):
            if facts.key == "slow":
                answers.wait(30.0)
            yield facts

    monkeypatch.setattr(apps[0], "briefs", hanging)
    console = create_app(apps[0], hosts=LOCAL_NAMES, refresh_s=0.0, wait_s=1.0)
    fleet = request(console, "/")
    assert 'href="/job/quick"' in fleet.body
    assert "1 of 2 jobs are still being read" in fleet.text
    answers.set()
    assert 'href="/job/slow"' in request(console, "/").body


def test_addresses_that_are_still_being_listed_are_not_said_to_be_empty(
    tmp_path: Path, apps: list[Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(tmp_path, "there", 1)
    apps.append(Reader([str(tmp_path)]))
    answers, find = threading.Event(), apps[0].found
    monkeypatch.setattr(apps[0], "found", lambda: answers.wait(30.0) and find())
    console = create_app(apps[0], hosts=LOCAL_NAMES, refresh_s=0.0, wait_s=0.1)
    shown = request(console, "/").text
    answers.set()
    assert "still being listed" in shown
    assert "No checkpoint was found" not in shown


def test_a_defect_in_the_background_is_said_on_the_page(
    tmp_path: Path, apps: list[Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    apps.append(Reader([str(tmp_path)]))
    monkeypatch.setattr(apps[0], "found", lambda: 1 / 0)
    console = create_app(apps[0], hosts=LOCAL_NAMES, refresh_s=0.0, wait_s=30.0)
    with pytest.raises(ZeroDivisionError):  # which starlette raises again after the answer
        request(console, "/")


def test_an_open_page_learns_that_it_has_changed(tmp_path: Path, apps: list[Reader]) -> None:
    store = finished(tmp_path, "live", 1)
    apps.append(Reader([str(tmp_path)]))
    console = create_app(apps[0], hosts=LOCAL_NAMES, refresh_s=0.05, wait_s=30.0)
    events = asyncio.run(changes(console, "/job/live", lambda: write_failure(store.url, KILLED)))
    assert len(set(events)) == 2
    assert events[-1] == request(console, "/job/live").headers["etag"]


async def changes(app: ASGIApp, path: str, change: Callable[[], None]) -> list[str]:
    """Return the first two events of a page, which changes after the first."""
    events: list[str] = []
    ended = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:  # noqa: ANN401 - of starlette's
        body = message.get("body", b"").decode()
        if body.startswith("data: "):
            events.append(body.removeprefix("data: ").strip())
            change()
        if len(events) == 2:
            ended.set()

    headers = [(b"host", b"localhost"), (b"accept", b"text/event-stream")]
    await app(scope(path, headers), receive, send)
    return events
