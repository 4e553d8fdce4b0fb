"""The reason that a driver writes for its supervisor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluicegate.deployment import termination
from sluicegate.deployment.environment import DriverVariable
from sluicegate.errors import Fenced


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DriverVariable.TERMINATION_FILE, str(tmp_path / "reason"))
    return tmp_path / "reason"


def test_an_error_is_written_with_its_three_parts(file: Path) -> None:
    assert not termination.written()
    termination.write(Fenced("epoch 3 was overtaken", data="nothing was written", do="keep one"))
    assert json.loads(file.read_text()) == {
        "kind": "Fenced",
        "what": "epoch 3 was overtaken",
        "data": "nothing was written",
        "do": "keep one",
    }
    assert termination.written()
    reason = termination.read(file)
    assert reason is not None
    assert (reason.data, reason.do) == ("nothing was written", "keep one")
    assert str(reason) == "Fenced: epoch 3 was overtaken" == termination.parse(file.read_text())


@pytest.mark.parametrize("character", ["x", "ü", "\U0001f600"])
def test_a_long_error_is_truncated_and_stays_valid_json(file: Path, character: str) -> None:
    """Kubernetes keeps 4096 bytes of a termination message."""
    termination.write(Fenced(character * 50_000, data="d" * 50_000, do="short"))
    content = file.read_bytes()
    assert len(content) <= 4096
    assert json.loads(content)["what"].startswith(character * 100)
    assert json.loads(content)["do"] == "short"


def test_a_file_that_cannot_be_written_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(DriverVariable.TERMINATION_FILE, str(tmp_path))
    termination.write(Fenced("x"))
    assert "cannot write" in caplog.text
