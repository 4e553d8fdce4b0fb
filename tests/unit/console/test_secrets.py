"""No secret is in any page: every page that links lead to is read, with secrets staged wherever they may be."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from starlette.types import ASGIApp

from sluicegate.console import stores
from sluicegate.console.app import LOCAL_NAMES, create_app
from sluicegate.console.reader import Reader
from sluicegate.protocol.record import Seal, SinkBinding
from sluicegate.settings.epoch import EpochSettings
from sluicegate.storage.driver_failure import DriverFailure, write_failure
from sluicegate.storage.driver_start import DriverStart, effective_settings, write_start
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.object_store import LocalObjectStore
from tests.unit.console.browser import Answer, finished, request
from tests.unit.console.test_pages import rewrite
from tests.unit.savepoints import builders as savepoints

SECRET = "hunter2"
URL = f"mysql://root:{SECRET}@db:3306/shop"
_LINK = re.compile(r'(?:href|data-src|src)="(/[^"]*)"')


@dataclass(frozen=True)
class Settings(EpochSettings):
    """A job's settings, some of which are secrets."""

    api_token: str = SECRET
    database: str = URL
    greeting: str = field(default=SECRET)
    password_length: int = 7


def crawl(console: ASGIApp) -> dict[str, Answer]:
    """Return every page that links lead to from the start page."""
    pages: dict[str, Answer] = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        if path not in pages:
            pages[path] = request(console, path)
            waiting += [unquote(html.unescape(link)) for link in _LINK.findall(pages[path].body)]
    return pages


def stage_secrets(root: Path) -> None:
    """Write a job whose records, reports, failures, starts, logs and savepoints name secrets."""
    store = finished(root, "checkpoints/secrets", 3)
    log = StoredEpochLog(store)
    record = log.read(0)
    assert record is not None
    bound: dict[str, SinkBinding] = {
        sink: replace(binding, target=f"table {URL}") for sink, binding in record.sinks.items()
    }
    for epoch in range(3):
        rewrite(store, epoch, sinks=bound)
        metadata = {"batchTimestampMs": 1, "conf": {"spark.hadoop.fs.s3a.secret.key": SECRET}}
        source = {"path": f"{URL}/{epoch}"}
        lines = f"v1\n{json.dumps(metadata)}\n{json.dumps(source)}"
        store.put(f"offsets/{epoch}", [lines.encode()])
    log.create_seal(Seal("s", "l", "j", 3, f"moved to {URL}", 0))
    spark = {"spark.master": "local", "spark.hadoop.fs.s3a.secret.key": SECRET, "spark.task.x": URL}
    for at_ms in (1, 2):
        settings = Settings(interval=f"{at_ms} seconds", password_length=at_ms)
        found = effective_settings(settings, bound, None, "append", spark)
        write_start(store.url, DriverStart(at_ms, found))
    why = f"cannot reach {URL}; tried password={SECRET}"
    write_failure(store.url, DriverFailure(1, 2.5, 75, "TargetMissing", why, why, why, "restart"))
    checkpoint = savepoints.checkpoint(root / "checkpoints" / "saved", 2)
    savepoints.take(checkpoint, str(root / "savepoints"))


def test_no_page_that_links_lead_to_has_a_secret(
    tmp_path: Path, apps: list[Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "SLUICEGATE_KAFKA_PASSWORD"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("SLUICEGATE_MYSQL", URL)
    stage_secrets(tmp_path)
    apps.append(Reader([str(tmp_path), f"ftp://root:{SECRET}@host/x"]))
    pages = crawl(create_app(apps[0], hosts=LOCAL_NAMES, refresh_s=0.0, wait_s=30.0))
    job = "/job/checkpoints/secrets"
    expected = {"/", job, "/job/checkpoints/saved", "/static/console.js"}
    assert expected | {f"{job}/epoch/{epoch}" for epoch in range(3)} <= pages.keys()
    shown = {path: page for path, page in pages.items() if SECRET in f"{page.headers} {page.body}"}
    assert shown == {}
    assert "table mysql://db:3306/shop" in pages[job].text, "the rest of it is shown"
    assert "TargetMissing" in pages[job].text
    assert "database" not in pages[job].text, "no text that a job declares is recorded"


def test_a_store_that_does_not_answer_is_named_without_its_password(
    apps: list[Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_RETRY_S", 0.1)
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://root:{SECRET}@127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "reader",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    apps.append(Reader(["s3://bucket/prefix"]))
    pages = crawl(create_app(apps[0], hosts=LOCAL_NAMES, refresh_s=0.0, wait_s=30.0))
    assert "the checkpoint store did not list" in pages["/"].text
    assert all(SECRET not in f"{page.headers} {page.body}" for page in pages.values())


def test_a_page_without_a_secret_still_has_one_in_its_checkpoint(tmp_path: Path) -> None:
    """Otherwise the tests above would test nothing."""
    stage_secrets(tmp_path)
    store = LocalObjectStore(tmp_path / "checkpoints" / "secrets")
    holding = [name for name in store.names("") if SECRET.encode() in (store.read(name) or b"")]
    assert {"epochs", "failures", "offsets"} <= {name.partition("/")[0] for name in holding}
