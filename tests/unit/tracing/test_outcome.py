"""What a driver leaves for its supervisor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluicegate.protocol.errors import Fenced
from sluicegate.tracing import outcome


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(outcome.VARIABLE, str(tmp_path / "said"))
    return tmp_path / "said"


def test_an_error_is_left_with_its_three_sentences(file: Path) -> None:
    assert not outcome.written()
    outcome.write(Fenced("epoch 3 is behind", data="nothing was written", do="keep one"))
    assert json.loads(file.read_text()) == {
        "kind": "Fenced",
        "what": "epoch 3 is behind",
        "data": "nothing was written",
        "do": "keep one",
    }
    assert outcome.written()
    assert outcome.read(file) == "Fenced: epoch 3 is behind"


@pytest.mark.parametrize("letter", ["x", "ü", "\U0001f600"])
def test_a_long_one_is_cut_and_is_still_json(file: Path, letter: str) -> None:
    """Kubernetes takes 4096 bytes of a termination message."""
    outcome.write(Fenced(letter * 50_000, data="d" * 50_000, do="short"))
    said = file.read_bytes()
    assert len(said) <= 4096
    assert json.loads(said)["what"].startswith(letter * 100)
    assert json.loads(said)["do"] == "short"


def test_a_file_that_cannot_be_written_is_logged_and_hides_no_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(outcome.VARIABLE, str(tmp_path))
    outcome.write(Fenced("x"))
    assert "cannot be written" in caplog.text
