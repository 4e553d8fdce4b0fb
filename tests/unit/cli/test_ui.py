"""`sluicegate ui` serves the console."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluicegate.cli.app import app
from sluicegate.storage.lineage import claim_lineage
from sluicegate.storage.object_store import LocalObjectStore


def test_it_prints_where_it_serves_the_jobs_of_a_folder_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    claim_lineage(LocalObjectStore(tmp_path / "shop"), "orders")
    command = [sys.executable, "-m", "sluicegate.cli", "ui", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            url = running.stdout.readline().split()[0]
            assert url.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - printed by our program
                assert "orders" in answer.read().decode()
        finally:
            running.send_signal(2)
        assert running.wait(20) == 0


def test_a_port_that_is_taken_is_said_in_three_parts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, ["ui", "--port", port])
    assert result.exit_code == 64
    assert f"cannot listen on 127.0.0.1, port {port}" in result.output
    assert "choose another --port" in result.output


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = CliRunner().invoke(app, ["ui"])
    assert result.exit_code == 64
    assert "with its extra `ui`" in result.output


@pytest.mark.parametrize("url", ["javascript:alert({trace_id})", "http://jaeger/trace"])
def test_an_address_of_traces_that_cannot_be_one_is_refused(url: str) -> None:
    result = CliRunner().invoke(app, ["ui", "--trace-url", url])
    assert result.exit_code == 2
    assert "no http address with {trace_id}" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "names no file with a secret of at least 16 characters"),
        (["--proxy-secret-file=absent"], "cannot be read"),
        (["--proxy-secret-file=short"], "names no file with a secret of at least 16 characters"),
        (["--proxy-secret-file=long", "--group=system:masters"], "a group of Kubernetes itself"),
        (["--proxy-secret-file=long"], "the console runs in no pod"),
    ],
)
def test_actions_that_anybody_could_do_are_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    Path("short").write_text("hunter2")
    Path("long").write_text("0123456789abcdef")
    result = CliRunner().invoke(app, ["ui", "--actions", *options])
    assert result.exit_code == 64
    assert message in result.output
    assert "leave out --actions" in result.output
