"""`sluicegate savepoint` and `sluicegate stop`, on a checkpoint built by the test."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sluicegate.cli import savepoints
from sluicegate.cli.app import app
from sluicegate.savepoints import stop_request
from sluicegate.savepoints.stop_request import Answer, StopRequest, StopRequestInbox
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import ObjectStore, open_store
from tests.unit.savepoints.builders import checkpoint


@pytest.fixture
def parent(tmp_path: Path) -> str:
    """Return a checkpoint with three completed epochs."""
    return checkpoint(tmp_path / "parent", 3)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll for an answer without a pause."""
    monkeypatch.setattr(stop_request, "_POLL_S", 0.0)


def run(*arguments: object) -> Result:
    """Run the command as a user does."""
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def taken(parent: str, tmp_path: Path, *options: str) -> str:
    """Take a savepoint and return its address."""
    result = run("savepoint", "take", parent, tmp_path / "savepoints", *options)
    assert result.exit_code == 0, result.output
    return result.output.split()[0]


def test_a_taken_savepoint_is_listed_with_its_epoch(parent: str, tmp_path: Path) -> None:
    url = taken(parent, tmp_path)
    (line,) = run("savepoint", "list", tmp_path / "savepoints").output.splitlines()
    assert line.startswith(url)
    assert "job j  epoch 2" in line
    assert line.endswith("branch")


def test_an_empty_folder_has_no_savepoint(tmp_path: Path) -> None:
    assert "no savepoint" in run("savepoint", "list", tmp_path).output


def test_a_sealed_savepoint_shows_the_next_step_and_where_it_was_restored(
    parent: str, tmp_path: Path
) -> None:
    result = run("savepoint", "take", parent, tmp_path / "savepoints", "--seal")
    assert "is sealed" in result.output
    run("savepoint", "restore", result.output.split()[0], tmp_path / "new")
    listed = run("savepoint", "list", tmp_path / "savepoints").output
    assert f"restored into {tmp_path / 'new'}" in listed


@pytest.mark.parametrize(
    ("seal", "message"), [((), "it must not write to the sinks"), (("--seal",), "replaces lineage")]
)
def test_a_restore_reports_the_kind_of_the_new_lineage(
    parent: str, tmp_path: Path, seal: tuple[str, ...], message: str
) -> None:
    result = run("savepoint", "restore", taken(parent, tmp_path, *seal), tmp_path / "new")
    assert message in result.output
    assert "from epoch 3 on" in result.output


def test_a_disposed_savepoint_is_gone(parent: str, tmp_path: Path) -> None:
    url = taken(parent, tmp_path)
    assert run("savepoint", "dispose", url, "--yes").exit_code == 0
    assert "no savepoint" in run("savepoint", "list", tmp_path / "savepoints").output


def test_a_folder_that_is_not_a_savepoint_is_an_error(tmp_path: Path) -> None:
    result = run("savepoint", "dispose", tmp_path, "--yes")
    assert result.exit_code == 64
    assert "SavepointInvalid" in result.output


def test_a_stop_that_no_driver_accepts_is_withdrawn(parent: str) -> None:
    result = run("stop", parent, "--timeout", 0)
    assert result.exit_code == 1
    assert "withdrawn" in result.output


@pytest.mark.parametrize(("stopped", "code"), [(True, 0), (False, 1)])
def test_a_stop_prints_the_answer_of_the_driver(parent: str, stopped: bool, code: int) -> None:  # noqa: FBT001 - a parameter
    store = open_store(parent)
    lineage = read_lineage(store)
    assert lineage is not None
    inbox = StopRequestInbox(store, lineage.id, 0.0)

    def driver() -> None:
        while inbox.poll() is None:
            pass
        inbox.answer(Answer(stopped, "answered"))

    thread = threading.Thread(target=driver)
    thread.start()
    result = run("stop", parent, "--timeout", 60)
    thread.join()
    assert (result.exit_code, "answered" in result.output) == (code, True)


def test_a_sealed_job_has_nothing_to_stop(parent: str, tmp_path: Path) -> None:
    taken(parent, tmp_path, "--seal")
    assert run("stop", parent).exit_code == 65


def test_a_folder_without_a_job_has_nothing_to_stop(tmp_path: Path) -> None:
    assert run("stop", tmp_path).exit_code == 64


def test_a_sealed_checkpoint_shows_its_seal(parent: str, tmp_path: Path) -> None:
    taken(parent, tmp_path, "--seal")
    assert "3  sealed: moved by savepoint" in run("epochs", "list", parent).output
    assert run("epochs", "show", parent, 3).exit_code == 65


def test_a_stop_asks_for_a_savepoint_where_the_caller_means_it(
    parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has another working directory."""
    asked: list[str] = []

    def request(
        _store: ObjectStore, _lineage: str, *, savepoint: str, valid_s: float
    ) -> StopRequest:
        asked.append(savepoint)
        return StopRequest("i", "l", int(valid_s), savepoint)

    monkeypatch.setattr(savepoints, "request_stop", request)
    monkeypatch.setattr(savepoints, "await_answer", lambda *_, **__: None)
    monkeypatch.chdir(tmp_path)
    for folder in ("moved", "s3://b/moved/"):
        assert run("stop", parent, "--savepoint", folder, "--timeout", 1).exit_code == 1
    assert asked == [str(tmp_path / "moved"), "s3://b/moved"]
