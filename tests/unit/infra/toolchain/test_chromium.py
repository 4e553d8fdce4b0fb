"""The browser of the console's tests: found, installed where that is possible, or named in one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.toolchain import chromium, host


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(chromium.VARIABLE, raising=False)
    monkeypatch.setattr(host, "may_install", lambda: False)
    return tmp_path


def program(folder: Path, name: str) -> Path:
    file = folder / name
    file.write_text("#!/bin/sh\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def test_a_browser_on_the_path_is_used(
    empty_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    browser = program(empty_path, "google-chrome")
    assert (chromium.main([]), chromium.missing_reason()) == (0, "")
    assert capsys.readouterr().out == f"{browser}\n"


def test_a_browser_that_the_environment_names_wins(
    empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(empty_path, "chromium")
    monkeypatch.setenv(chromium.VARIABLE, "/opt/chrome")
    assert chromium.path() == "/opt/chrome"


@pytest.mark.parametrize(("arguments", "code"), [([], 1), (["--optional"], 0)])
def test_a_missing_browser_is_one_line_that_says_what_to_do(
    empty_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    del empty_path
    assert chromium.main(arguments) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert "apt-get install chromium" in printed.err


def test_it_is_installed_where_that_is_possible(
    empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(commands: Mapping[str, str]) -> None:
        for command in commands:
            program(empty_path, command)

    monkeypatch.setattr(host, "may_install", lambda: True)
    monkeypatch.setattr(host, "need", install)
    assert chromium.main([]) == 0
