"""What makes a fleet of a thousand jobs cheap, counted on a small one: requests, bytes, pages that are made."""

from __future__ import annotations

import asyncio
import gzip
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp

from sluicegate.console import fleet, stores
from sluicegate.console.app import LOCAL_NAMES, create_app
from sluicegate.console.fleet import Fleet
from sluicegate.console.model import JobFacts
from sluicegate.console.pages import EVENTS, Pages
from sluicegate.console.reader import BRIEF, FIRST, Reader
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import LocalObjectStore, ObjectStore, open_store
from tests.bench.console.checkpoints import (
    UnsyncedStore,
    name_of,
    write_epoch,
    write_fleet,
    write_spark_logs,
)
from tests.unit.console.browser import request, scope

JOBS, EPOCHS = 5, BRIEF + 3
IN_DOUBT = name_of(0)


@pytest.fixture
def jobs(tmp_path: Path, apps: list[Reader]) -> Reader:
    """Return a reader of a few jobs, the first of which has an epoch in doubt."""
    write_fleet(tmp_path / "fleet", JOBS, time.time_ns() // 1_000_000, epochs=EPOCHS)
    apps.append(Reader([str(tmp_path / "fleet")]))
    return apps[0]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the requests to stores: what is done to which name, without numbers."""
    counted: Counter[str] = Counter()
    for method in ("read", "entries", "names"):
        original = getattr(LocalObjectStore, method)

        def counting(  # the defaults bind what the loop changes
            store: LocalObjectStore,
            name: str,
            method: str = method,
            original: Callable[..., Any] = original,
        ) -> Any:  # noqa: ANN401 - of either
            below = name.rsplit("job-", maxsplit=1)[-1].partition("/")[2]
            counted[f"{method} {below.rstrip('0123456789') or below}"] += 1
            return original(store, name)

        monkeypatch.setattr(LocalObjectStore, method, counting)
    return counted


def briefs(reader: Reader, known: dict[str, JobFacts], **options: Any) -> dict[str, JobFacts]:  # noqa: ANN401
    return {facts.key: facts for facts in reader.briefs(reader.found(), known, **options)}


def test_a_job_without_news_costs_three_lists_and_stays_the_same_object(
    jobs: Reader, requests: Counter[str]
) -> None:
    known = briefs(jobs, {})
    requests.clear()
    again = briefs(jobs, known, same_lineages=True)
    # the epoch in doubt may be applied meanwhile: its report, and Spark's commits
    in_doubt = {"read epochs/99.report": 1, "entries commits/": 1}
    assert requests == {
        "entries epochs/": JOBS,
        "entries offsets/": JOBS,
        "entries failures/": JOBS,
        **{name.replace("99", str(EPOCHS - 1)): n for name, n in in_doubt.items()},
    }
    assert all(again[key] is known[key] for key in known)


def test_a_new_epoch_costs_its_record_two_reports_and_when_it_was_planned(
    tmp_path: Path, jobs: Reader, requests: Counter[str]
) -> None:
    known = briefs(jobs, {})
    store = UnsyncedStore(tmp_path / "fleet" / name_of(1))
    lineage = read_lineage(store)
    assert lineage is not None
    write_epoch(store, lineage, EPOCHS, time.time_ns() // 1_000_000)
    write_spark_logs(store, EPOCHS, time.time_ns() // 1_000_000)
    requests.clear()
    again = briefs(jobs, known, same_lineages=True)
    assert requests["read epochs/"] == 1
    reports = {f"read epochs/{n}.report": 1 for n in (EPOCHS - 1, EPOCHS)}
    assert {name: requests[name] for name in reports} == {
        f"read epochs/{EPOCHS - 1}.report": 2,  # and that of the epoch in doubt
        f"read epochs/{EPOCHS}.report": 1,
    }
    assert requests["read offsets/"] == 1
    changed = {key for key in known if again[key] is not known[key]}
    assert changed == {name_of(1)}
    assert again[name_of(1)].every_sink_has == EPOCHS


def test_the_state_of_every_job_is_read_before_older_epochs_of_any(
    jobs: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    read = jobs.briefs

    def recording(*given: Any, **named: Any) -> Iterator[JobFacts]:  # noqa: ANN401 - handed on
        for facts in read(*given, **named):
            asked.append(len(facts.epochs))
            yield facts

    monkeypatch.setattr(jobs, "briefs", recording)
    snapshot = Fleet(jobs, 0.0, 30.0).snapshot()
    assert asked == [FIRST] * JOBS + [BRIEF] * JOBS
    assert {len(job.epochs) for job in snapshot.jobs} == {BRIEF}


def test_an_open_page_of_a_job_reads_no_other_job_again(
    jobs: Reader, requests: Counter[str]
) -> None:
    console = create_app(jobs, hosts=LOCAL_NAMES, refresh_s=0.0, wait_s=30.0)
    request(console, f"/job/{name_of(1)}")
    requests.clear()
    request(console, f"/job/{name_of(1)}")
    assert requests["entries epochs/"] == 1


def test_the_store_of_an_address_is_opened_once_for_all_jobs_below_it(
    jobs: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def opening(address: str, **named: Any) -> ObjectStore:  # noqa: ANN401 - handed on
        opened.append(address)
        return open_store(address, **named)

    monkeypatch.setattr(stores, "open_store", opening)
    briefs(jobs, {})
    assert jobs.job(name_of(1)) is not None
    assert opened == [jobs.addresses[0]]


def test_what_the_console_reads_from_cannot_be_changed_through_it(tmp_path: Path) -> None:
    folder = stores.Stores([str(tmp_path)]).open(str(tmp_path / "a"))
    for change in (
        lambda: folder.create("x", b""),
        lambda: folder.put("x", [b""]),
        lambda: folder.delete("x"),
        lambda: folder.sync(["x"]),
        folder.clear,
    ):
        with pytest.raises(AssertionError, match="only reads"):
            change()
    assert list(tmp_path.iterdir()) == []


def test_a_job_on_the_start_page_costs_a_hundred_bytes_on_the_network(
    tmp_path: Path, apps: list[Reader]
) -> None:
    write_fleet(tmp_path, 40, time.time_ns() // 1_000_000, epochs=BRIEF)
    apps.append(Reader([str(tmp_path)]))
    console = create_app(apps[0], hosts=LOCAL_NAMES, refresh_s=0.0, wait_s=30.0)
    page = request(console, "/").body.encode()
    assert page.count(b'id="job-') == 40
    assert len(page) < 40 * 2_000
    assert len(gzip.compress(page, 1)) < 40 * 100


def test_a_browser_gets_a_page_compressed_and_events_as_they_are(jobs: Reader) -> None:
    console = create_app(jobs, hosts=LOCAL_NAMES, refresh_s=600.0, wait_s=30.0)
    plain = asyncio.run(answer(console, b"identity"))
    packed = asyncio.run(answer(console, b"gzip, deflate, br"))
    assert dict(packed[0])[b"content-encoding"] == b"gzip"
    assert gzip.decompress(packed[1]) == plain[1]
    assert dict(packed[0])[b"etag"] == dict(plain[0])[b"etag"]
    assert b"content-encoding" not in dict(plain[0])


async def answer(app: ASGIApp, encodings: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return the headers and the body of the start page."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return await asyncio.Future()

    async def send(message: Any) -> None:  # noqa: ANN401 - of starlette's
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"accept-encoding", encodings)]
    await app(scope("/", headers), receive, send)
    return sent[0]["headers"], b"".join(message.get("body", b"") for message in sent)


def test_a_hundred_viewers_wait_for_one_page_in_one_thread() -> None:
    made: list[str] = []
    go = threading.Event()

    def make(asked: Request) -> Response:
        made.append(asked.url.path)
        assert go.wait(30.0)
        return HTMLResponse("page", headers={"etag": '"1"'})

    endpoint = Pages(refresh_s=600.0)(make)

    async def view() -> list[Response]:
        asked = Request(scope("/", [(b"host", b"localhost")]))
        first, *others = [asyncio.ensure_future(endpoint(asked)) for _ in range(100)]
        async with asyncio.timeout(30.0):
            while not made:  # noqa: ASYNC110 - by a thread, which can set no event of a loop
                await asyncio.sleep(0.01)
        first.cancel()  # who leaves must not take the page from the others
        go.set()
        return list(await asyncio.gather(*others))

    pages = asyncio.run(view())
    assert [page.body for page in pages] == [b"page"] * 99
    assert made == ["/"]


def test_open_pages_do_not_delay_another_page() -> None:
    """A thread for each viewer of a slow store would leave none for the others."""
    go = threading.Event()

    def make(asked: Request) -> Response:
        assert asked.url.path == "/job/a" or go.wait(30.0)
        return HTMLResponse(asked.url.path, headers={"etag": '"1"'})

    endpoint = Pages(refresh_s=600.0)(make)
    events = [(b"host", b"localhost"), (b"accept", EVENTS.encode())]

    async def view() -> Response:
        opened: list[Any] = [await endpoint(Request(scope("/", events))) for _ in range(100)]
        waiting = [asyncio.create_task(anext(aiter(page.body_iterator))) for page in opened]
        await asyncio.sleep(0)
        try:
            return await asyncio.wait_for(
                endpoint(Request(scope("/job/a", [(b"host", b"localhost")]))), 20.0
            )
        finally:
            go.set()
            assert await asyncio.gather(*waiting) == ['data: "1"\n\n'] * 100

    assert asyncio.run(view()).body == b"/job/a"


def test_a_page_does_not_wait_for_a_fleet_that_takes_longer_to_read(
    jobs: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Fleet(jobs, 0.0, 30.0)
    assert len(of.snapshot().jobs) == JOBS
    of._took_s = 31.0
    answers = threading.Event()
    found = jobs.found
    monkeypatch.setattr(jobs, "found", lambda: answers.wait(30.0) and found())
    assert len(of.snapshot().jobs) == JOBS, "as they were read a moment ago"
    answers.set()


def test_no_job_is_read_while_a_page_is_made(
    jobs: Reader, requests: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of a thousand jobs would otherwise share the interpreter with sixteen threads."""
    monkeypatch.setattr(fleet, "_PAUSE_S", 30.0)
    of = Fleet(jobs, 0.0, 30.0)
    assert len(of.snapshot().jobs) == JOBS
    of._took_s = 31.0  # so that the page does not wait for the next pass
    requests.clear()
    with of.shown() as snapshot:
        assert len(snapshot.jobs) == JOBS
        time.sleep(0.2)
        assert not requests
    while not requests:
        time.sleep(0.01)


def test_a_page_that_was_made_in_vain_does_not_stop_the_reading(jobs: Reader) -> None:
    of = Fleet(jobs, 0.0, 30.0)
    with pytest.raises(ZeroDivisionError), of.shown():
        raise ZeroDivisionError
    assert of._undisturbed.is_set()


def test_the_first_paint_has_the_first_jobs_and_a_script_shows_the_others(
    jobs: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.console.app._FIRST_ROWS", 2)
    console = create_app(jobs, hosts=LOCAL_NAMES, refresh_s=0.0, wait_s=30.0)
    first, _, later = request(console, "/").body.partition('<tbody class="later">')
    assert (first.count('id="job-'), later.count('id="job-')) == (2, JOBS - 2)
    assert '.later")' in request(console, "/static/console.js").body


def test_a_page_knows_its_own_etag_so_that_its_first_event_fetches_nothing(jobs: Reader) -> None:
    console = create_app(jobs, hosts=LOCAL_NAMES, refresh_s=600.0, wait_s=30.0)
    page = request(console, "/")
    (known,) = re.findall(r'data-etag="([^"]+)"', page.body)
    assert page.headers["etag"] == f'W/"{known}"'


def test_jobs_that_nobody_viewed_for_a_minute_are_not_shown_as_they_were_then(
    jobs: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Fleet(jobs, 0.0, 0.5)
    while len(of.snapshot().jobs) < JOBS or of._thread is not None:
        time.sleep(0.01)
    monkeypatch.setattr(fleet, "_OLD_S", 0.0)
    answers = threading.Event()
    read = jobs.briefs
    monkeypatch.setattr(jobs, "briefs", lambda *of, **n: answers.wait(30.0) and read(*of, **n))
    snapshot = of.snapshot()
    answers.set()
    assert (len(snapshot.jobs), snapshot.found) == (0, JOBS)


def test_more_folders_than_are_searched_are_said_on_the_page(
    jobs: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.console.discovery._FOLDERS", 3)
    (problem,) = jobs.found().problems
    assert "has more than 3 folders" in problem.what
