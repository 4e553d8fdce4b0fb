"""The pages of the console, requested as a browser does, on checkpoints of the real runner."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.types import ASGIApp

from sluicegate.console.app import LOCAL_NAMES, create_app
from sluicegate.console.cost import Prices
from sluicegate.console.reader import Reader
from sluicegate.console.redaction import without_user_info
from sluicegate.protocol.record import EpochRecord, Seal, SinkBinding
from sluicegate.storage.driver_failure import DriverFailure, write_failure
from sluicegate.storage.driver_start import DriverStart, write_start
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import Lineage, create_lineage
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.console.browser import finished, in_doubt, new, request
from tests.unit.savepoints import builders as savepoints
from tests.unit.spark.memory_epochs import run


def content(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_the_pages_of_a_job_name_its_epochs_sinks_and_steps(
    tmp_path: Path, console: ASGIApp
) -> None:
    finished(tmp_path, "shop/pages")
    fleet = request(console, "/")
    assert "epoch 2" in fleet.text
    assert 'href="/job/shop/pages"' in fleet.body
    job = request(console, "/job/shop/pages")
    assert "memory.pages 2 has its 3 rows" in job.text
    assert "null 3" in job.text, "dead letters of three epochs"
    assert "Bound by" in job.text or "It waits" in job.text
    epoch = request(console, "/job/shop/pages/epoch/1")
    assert "Every sink has it." in epoch.text
    for step in ("stage", "decide", "begin", "write", "flush", "commit", "apply"):
        assert re.search(rf'<th scope="row">{step} ', epoch.body), step


def test_pages_change_nothing_in_a_checkpoint(tmp_path: Path, console: ASGIApp) -> None:
    finished(tmp_path, "shop/readonly")
    before = content(tmp_path)
    for path in ("/", "/job/shop/readonly", "/job/shop/readonly/epoch/0", "/job/nowhere"):
        request(console, path)
    assert content(tmp_path) == before


def test_a_decided_epoch_of_a_dead_driver_is_in_doubt(tmp_path: Path, console: ASGIApp) -> None:
    store = in_doubt(tmp_path, "doubt")
    job = request(console, "/job/doubt")
    assert "memory.doubt 0 in doubt: has none, or 0 too" in job.text
    assert "IN DOUBT" in request(console, "/job/doubt/epoch/0").text
    run(store)
    assert "memory.doubt 0 has its 3 rows" in request(console, "/job/doubt").text


@pytest.mark.parametrize("name", ["lineage.json", "epochs/1", "epochs/2"])
@pytest.mark.parametrize("damage", [b"", b"torn", b"[1]", b"null", b"\xff\xfe"])
def test_a_damaged_object_is_named_and_the_rest_is_shown(
    tmp_path: Path, console: ASGIApp, name: str, damage: bytes
) -> None:
    finished(tmp_path, "broken").put(name, [damage])
    finished(tmp_path, "healthy")
    job = request(console, "/job/broken")
    assert job.status == 200
    assert "damaged" in job.text
    assert name in job.text
    assert "Traceback" not in job.body
    fleet = request(console, "/")
    assert fleet.text.index("broken") < fleet.text.index("healthy"), "what is wrong comes first"
    number = name.removeprefix("epochs/")
    if number.isdecimal():
        answer = request(console, f"/job/broken/epoch/{number}")
        assert answer.status == 503
        assert name in answer.text


def test_a_missing_record_between_two_is_damage(tmp_path: Path, console: ASGIApp) -> None:
    finished(tmp_path, "gap").delete("epochs/1")
    assert "epochs/1 is missing, but epochs/2 exists" in request(console, "/job/gap").text


@pytest.mark.parametrize("damage", [b"", b"torn", b'{"epoch":1}', b"[]"])
def test_a_damaged_report_is_only_a_note(tmp_path: Path, console: ASGIApp, damage: bytes) -> None:
    finished(tmp_path, "noted").put("epochs/1.report", [damage])
    job = request(console, "/job/noted")
    assert "Note: epochs/1.report is damaged or of another version" in job.text
    assert "No report" in request(console, "/job/noted/epoch/1").text


def test_a_store_that_cannot_be_read_is_said_on_the_page(
    tmp_path: Path, apps: list[Reader]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    apps.append(Reader([str(tmp_path / "file"), "ftp://host/x"]))
    app = create_app(apps[0], hosts=LOCAL_NAMES, refresh_s=0.0, wait_s=30.0)
    fleet = request(app, "/")
    assert fleet.status == 200
    assert "the checkpoint store did not list" in fleet.text
    assert "unknown scheme" in fleet.text


def test_a_folder_without_checkpoints_is_said_on_the_page(console: ASGIApp) -> None:
    assert "No checkpoint was found below" in request(console, "/").text


def test_a_sealed_job_shows_its_seal_and_its_savepoint(tmp_path: Path, console: ASGIApp) -> None:
    checkpoint = savepoints.checkpoint(tmp_path / "checkpoints" / "moved", 2)
    savepoints.take(checkpoint, str(tmp_path / "savepoints"), seal=True)
    job = request(console, "/job/checkpoints/moved")
    assert "Sealed before epoch 2" in job.text
    assert "epoch 1" in job.text.partition("Savepoints")[2]
    assert "sealed for a move" in job.text
    fleet = request(console, "/").body
    assert "/job/savepoints" not in fleet, "a savepoint is no job"
    assert re.search(r'data-label="lag">\u2013</td>', fleet), "its input is that of another job"


def test_a_restored_job_shows_where_it_comes_from(tmp_path: Path, console: ASGIApp) -> None:
    checkpoint = savepoints.checkpoint(tmp_path / "old", 2)
    taken = savepoints.take(checkpoint, str(tmp_path / "savepoints"), seal=True)
    savepoints.restore(taken.url, str(tmp_path / "new"))
    job = request(console, "/job/new")
    tree = job.text.partition("Savepoints")[2]
    assert tree.index("savepoint of epoch 1") < tree.index("moved here before epoch 2")
    assert 'href="/job/old"' in job.body


def test_a_job_that_was_upgraded_hundreds_of_times_has_a_page(
    tmp_path: Path, console: ASGIApp
) -> None:
    """A page that is as deep as the tree needs more recursion than Python allows."""
    for n in range(300):
        parent = str(n - 1) if n else ""
        create_lineage(
            LocalObjectStore(tmp_path / str(n)), Lineage(str(n), "orders", n, parent, moved=True)
        )
    job = request(console, "/job/299")
    assert job.status == 200
    assert "280 lineages further away from this job are not shown" in job.text
    assert 'href="/job/280"' in job.body
    assert 'href="/job/279"' not in job.body
    tree = job.body.partition('<ul class="tree">')[2].partition("</section>")[0]
    assert tree.count("<li>") == tree.count("</li>") == 20
    assert tree.count("<ul>") == tree.count("</ul>") - 1 == 19


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("savepoint.json", '"epoch": 1', '"epoch": "<b>"'),
        ("savepoint.json", '"created_at_ms": ', '"created_at_ms": 99999999'),
        ("savepoint.json", "{", "["),
        ("moved.json", "", "[]"),
    ],
)
def test_a_damaged_savepoint_hides_nothing_of_its_job(
    tmp_path: Path, console: ASGIApp, name: str, old: str, new: str
) -> None:
    checkpoint = savepoints.checkpoint(tmp_path / "c" / "job", 2)
    taken = LocalObjectStore(Path(savepoints.take(checkpoint, str(tmp_path / "s")).url))
    content = (taken.read(name) or b"").decode()
    assert old in content
    taken.put(name, [content.replace(old, new, 1).encode() if old else new.encode()])
    job = request(console, "/job/c/job")
    assert job.status == 200
    assert "memory.t 1 has its 10 rows" in job.text


@pytest.mark.parametrize(
    "path",
    [
        "/job/../secret",
        "/job/shop/../../secret",
        "/job//etc",
        "/job/shop/safe/epoch/99",
        "/job/shop/safe/../safe",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/nowhere",
    ],
)
def test_what_was_not_found_by_the_reader_is_not_served(
    tmp_path: Path, apps: list[Reader], path: str
) -> None:
    finished(tmp_path, "inside/shop/safe", 1)
    finished(tmp_path, "secret", 1)
    apps.append(Reader([str(tmp_path / "inside")]))
    answer = request(create_app(apps[0], hosts=LOCAL_NAMES, refresh_s=0.0, wait_s=30.0), path)
    assert answer.status == 404
    assert "sluicegate.console" not in answer.body


def rewrite(store: LocalObjectStore, epoch: int, **fields: Any) -> None:  # noqa: ANN401
    """Replace a record, by one with some other fields."""
    log = StoredEpochLog(store)
    record = log.read(epoch)
    assert isinstance(record, EpochRecord)
    store.delete(f"epochs/{epoch}")
    log.create(replace(record, **fields))


def test_what_a_checkpoint_says_is_escaped(tmp_path: Path, console: ASGIApp) -> None:
    script = "<script>alert(1)</script>"
    store = finished(tmp_path, "shop&<b>", 1)
    store.put("lineage.json", [json.dumps({"id": script, "job": script}).encode()])
    rewrite(store, 0, counts={f"dead_letters_{script}": 1}, traceparent=script, attempt=script)
    store.put("offsets/0", [f"v1\n{{}}\n{script}".encode()])
    StoredEpochLog(store).create_seal(Seal("s", "l", "j", 1, script, 0))
    for path in ("/", "/job/shop&<b>", "/job/shop&<b>/epoch/0", f"/job/{script}"):
        answer = request(console, path)
        assert "alert(1)" in answer.body
        assert "<script>alert" not in answer.body
        assert "<b>" not in answer.body.partition("<nav")[2].partition("</nav>")[0]


def test_no_page_has_the_password_of_a_url(tmp_path: Path, console: ASGIApp) -> None:
    store = finished(tmp_path, "secrets", 1)
    record = StoredEpochLog(store).read(0)
    assert record is not None
    target = "table mysql://root:hunter2@db:3306/shop"
    bound = {sink: replace(binding, target=target) for sink, binding in record.sinks.items()}
    rewrite(store, 0, sinks=bound)
    StoredEpochLog(store).create_seal(Seal("s", "l", "j", 1, f"moved to {target}", 0))
    for path in ("/", "/job/secrets", "/job/secrets/epoch/0"):
        answer = request(console, path)
        assert answer.status == 200
        assert "hunter2" not in answer.body
    assert "mysql://db:3306/shop" in request(console, "/job/secrets").text
    assert without_user_info("a://u:p@s@h/x?y b://c") == "a://h/x?y b://c"


@pytest.mark.parametrize("path", ["/", "/nowhere", "/static/console.css", "/static/console.js"])
def test_every_answer_allows_only_the_consoles_own_files(console: ASGIApp, path: str) -> None:
    answer = request(console, path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    inline = re.findall(r"<script(?![^>]*src=)|\sstyle=|\son\w+=|https?://", answer.body)
    assert inline == [], "the policy forbids these"


def test_a_job_without_failures_and_dead_letters_says_so(tmp_path: Path, console: ASGIApp) -> None:
    new(tmp_path, "clean")
    page = request(console, "/job/clean").text
    assert "Restarts: no failure of a driver is recorded." in page
    assert "Dead letters: none in the last 0 epochs." in page


def test_a_job_shows_why_its_last_drivers_failed(tmp_path: Path, console: ASGIApp) -> None:
    store = finished(tmp_path, "failed", 1)
    table = "mysql://root:hunter2@db:3306/shop"
    older = DriverFailure(1, 2.5, 75, "EpochTimeout", f"late for {table}", "none lost", "restart")
    write_failure(store.url, older)
    write_failure(store.url, DriverFailure(2, 2.5, -9, then="restart in 1 s"))
    job = request(console, "/job/failed")
    shown = job.text.partition("Ended drivers")[2]
    assert "Data none lost Do restart" in shown
    assert shown.index("killed by signal 9") < shown.index("EpochTimeout"), "the newest first"
    assert "hunter2" not in job.body
    store.put("failures/3", [b"torn"])
    assert "failures/3 is damaged" in request(console, "/job/failed").text


def test_a_failed_job_shows_when_it_is_tried_again(tmp_path: Path, console: ASGIApp) -> None:
    store = in_doubt(tmp_path, "again")
    at_ms = 1_893_456_005_000
    write_failure(store.url, DriverFailure(at_ms - 9_000, 2.5, -9, next_try_ms=at_ms))
    shown = request(console, "/job/again").text
    assert "next try \u2013 by a new driver at 2030-01-01 00:00:05 UTC" in shown


def test_a_job_shows_its_settings_and_what_differs_from_before(
    tmp_path: Path, console: ASGIApp
) -> None:
    store = finished(tmp_path, "set", 1)
    assert "No start of a driver is recorded" in request(console, "/job/set").text
    write_start(store.url, DriverStart(1, {"interval": "10 seconds", "sink.x": "u://a:hunter2@b"}))
    write_start(store.url, DriverStart(2, {"interval": "1 second", "sink.x": "u://a:hunter2@b"}))
    job = request(console, "/job/set")
    assert "Before Now interval 10 seconds 1 second All settings" in job.text
    assert "hunter2" not in job.body, "it is removed again where it is shown"
    store.put("starts/3", [b"torn"])
    assert "starts/3 is damaged" in request(console, "/job/set").text


def test_a_job_shows_how_long_the_parts_of_its_start_took(tmp_path: Path, console: ASGIApp) -> None:
    store = finished(tmp_path, "timed", 1)
    write_start(store.url, DriverStart(1, {}, {"session": 4.31, "query": 1.0}))
    shown = "The parts of its start took: session 4.3 s, query 1.0 s."
    assert shown in request(console, "/job/timed").text


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"dead-letters": "memory.dead"}, "No samples: they are in"),
        ({"dead-letters": "none"}, "The job has no sink for dead letters."),
        ({"dead-letters": "gone"}, "No samples: no driver has recorded where they are."),
        ({}, "No samples: no driver has recorded where they are."),
    ],
)
def test_a_job_says_in_a_line_why_it_has_no_samples(
    tmp_path: Path, console: ASGIApp, settings: dict[str, str], shown: str
) -> None:
    store = finished(tmp_path, "dead", 1)
    write_start(store.url, DriverStart(1, settings))
    for path in ("/job/dead", "/dead-letters/dead"):
        answer = request(console, path)
        assert answer.status == 200
        assert shown in answer.text


def test_a_console_without_kafka_names_the_command_that_lists_samples(
    tmp_path: Path, console: ASGIApp
) -> None:
    store = finished(tmp_path, "dead", 1)
    (sink,) = StoredEpochLog(store).read(0).sinks  # type: ignore[union-attr] # finished has it
    rewrite(store, 0, sinks={sink: SinkBinding("kafka", "topic letters", 1, "k")})
    write_start(store.url, DriverStart(1, {"dead-letters": sink}))
    job = request(console, "/job/dead")
    assert "no access to Kafka" in job.text
    assert "dead-letters list letters --examples 2" in job.text
    assert "data-src" not in job.body


def test_a_traced_epoch_links_to_its_trace(tmp_path: Path, apps: list[Reader]) -> None:
    store, trace = finished(tmp_path, "traced", 3), "0af7651916cd43dd8448eb211c80319c"
    rewrite(store, 0, traceparent=f"00-{trace}-b7ad6b7169203331-01")
    rewrite(store, 1, traceparent="javascript:alert(1)")
    rewrite(store, 2, traceparent=f"00-{trace}-b7ad6b7169203331-00")
    apps.append(Reader([str(tmp_path)]))
    jaeger = "http://jaeger:16686/trace/{trace_id}"
    console = create_app(apps[0], hosts=LOCAL_NAMES, refresh_s=0.0, trace_url=jaeger)
    traced = request(console, "/job/traced/epoch/0")
    assert f'href="http://jaeger:16686/trace/{trace}"' in traced.body
    for not_sampled in (1, 2):
        assert "open the trace" not in request(console, f"/job/traced/epoch/{not_sampled}").text


def test_a_read_only_page_shows_actions_as_commands(tmp_path: Path, console: ASGIApp) -> None:
    store = finished(tmp_path, "clicks", 1)
    assert "No driver has recorded a StreamingJob" in request(console, "/job/clicks").text
    write_start(store.url, DriverStart(1, {"kubernetes.job": "shop/clicks"}))
    job = request(console, "/job/clicks")
    assert "This console is read-only" in job.text
    assert "kubectl sluicegate -n shop restart clicks" in job.text
    assert 'href="/actions/' not in job.body
    assert request(console, "/actions/clicks").status == 404


def test_a_job_shows_its_cost_if_there_is_a_price(
    tmp_path: Path, console: ASGIApp, apps: list[Reader]
) -> None:
    store = finished(tmp_path, "costly", 1)
    pod = {
        "kubernetes.driver.cpu": "2",
        "kubernetes.driver.memory": "4Gi",
        "spark.master": "local[2]",
    }
    write_start(store.url, DriverStart(1, pod))
    assert 'id="cost"' not in request(console, "/job/costly").body
    prices = Prices(core_hour=0.05, gib_hour=0.01, currency="EUR")
    priced = create_app(apps[0], hosts=LOCAL_NAMES, refresh_s=0.0, wait_s=30.0, prices=prices)
    shown = request(priced, "/job/costly").text
    assert (
        "0.14 EUR an hour while its driver runs: 1 driver with 2 cores and 4 GiB, 0 executors."
        in shown
    )
    assert "1 of the 1 recorded drivers" in shown
    write_start(store.url, DriverStart(2, {}))
    assert "did not record its own requests" in request(priced, "/job/costly").text


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", ""])
def test_a_request_by_another_name_is_refused(console: ASGIApp, host: str) -> None:
    assert request(console, "/", host=host).status == 400


@pytest.mark.parametrize("host", ["localhost:8321", "127.0.0.1", "[::1]:8321"])
def test_a_request_by_a_name_of_this_machine_is_answered(console: ASGIApp, host: str) -> None:
    assert request(console, "/", host=host).status == 200


def test_a_link_with_the_address_of_a_checkpoint_leads_to_its_job(
    tmp_path: Path, console: ASGIApp
) -> None:
    """As Events of the operator do, which does not know what the console calls a job."""
    finished(tmp_path, "shop/a job", 1)
    found = request(
        console, "/find", query=f"checkpoint={quote(f'{tmp_path}/shop/a job', safe='')}"
    )
    assert (found.status, found.headers["location"]) == (307, "/job/shop/a%20job")
    for other in (f"{tmp_path}/shop", "/etc", "<script>", ""):
        missing = request(console, "/find", query=f"checkpoint={quote(other, safe='')}")
        assert missing.status == 404
        assert "<script>" not in missing.body.partition("<main")[2]


def test_a_link_with_the_name_of_a_streaming_job_leads_to_its_newest_checkpoint(
    tmp_path: Path, console: ASGIApp
) -> None:
    """As alerts do, which do not know where checkpoints are."""
    for number, name in ((1, "shop/clicks"), (2, "shop/clicks"), (3, "shop/other")):
        store = finished(tmp_path, f"clicks/{number}", 1)
        write_start(store.url, DriverStart(number, {"kubernetes.job": name}))
    found = request(console, "/find", query="job=shop/clicks")
    assert (found.status, found.headers["location"]) == (307, "/job/clicks/2")
    missing = request(console, "/find", query="job=shop/<script>")
    assert missing.status == 404
    assert "<script>" not in missing.body.partition("<main")[2]
