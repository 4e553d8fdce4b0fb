"""The check of the repository's English."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.prose.__main__ import findings, rules


def report(tmp_path: Path, name: str, text: str) -> list[str]:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return list(findings(path, rules()))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", '"""Whoever reads this."""\n'),
        ("a.py", "x = 1  # kept for ever\n"),
        ("a.py", '"""The sink is brought forward."""\n'),
        ("a.py", '"""Bring a sink that regressed forward first."""\n'),
        ("a.md", "The driver is told where it is.\n"),
        ("values.yaml", "# which taints are borne\n"),
    ],
)
def test_a_banned_word_is_reported_with_its_line_and_advice(
    tmp_path: Path, name: str, text: str
) -> None:
    (line,) = report(tmp_path, name, text)
    assert line.startswith(f"{tmp_path / name}:1: ")
    assert "; write: " in line


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "whoever = 1\n"),
        ("a.py", '"""Dead letters of the job."""\n'),
        ("a.md", 'It prints "whoever is there".\n'),
        ("a.md", "The option `--beside` is gone.\n"),
    ],
)
def test_code_and_quotations_are_exempt(tmp_path: Path, name: str, text: str) -> None:
    assert report(tmp_path, name, text) == []
