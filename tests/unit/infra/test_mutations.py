"""The mutants that `make mutants` makes, and the check of its list of equivalent ones."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.mutation.__main__ import main, problems_of, report_on
from tests.mutation.mutations import Mutant, mutants_of
from tests.mutation.runner import KILLED, ROOT, SURVIVED, Target

Report = Callable[[Mutant, str], None]


def mutants(folder: Path, source: str) -> dict[str, str]:
    """Return the mutants of a module: what changes, and the changed source."""
    file = folder / "m.py"
    file.write_text(source)
    return {one.id.split(": ", 1)[1]: ast.unparse(one.code()) for one in mutants_of(file, "m.py")}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if a: b()", {"if a -> if True", "if a -> if False", "without b()"}),
        ("x = a and b", {"a and b -> a", "a and b -> b"}),
        ("x = a < 3", {"a < 3 -> a <= 3", "3 -> 4"}),
        ("x = not a", {"not a -> a"}),
        ("f.x = a", {"without f.x = a"}),
        ("x = f(k=a)", {"f(...) without k=a"}),
        ("x = [*a, b]", {"[*a, b] -> [b]"}),
        ("x = [b for b in a if b]", {"for b: without if b"}),
        ("return a", {"return a -> return None"}),
        ("raise E('text')", {"without raise E('text')"}),
        (
            "try:\n  a\nexcept (E, F): b",
            {"without a", "without b", "except without E", "except without F"},
        ),
        ("log.info('text', 3)", set()),
        ("x: int = a", set()),
        ("'text'", set()),
    ],
)
def test_the_mutants_of_a_statement(tmp_path: Path, body: str, expected: set[str]) -> None:
    lines = "".join(f"\n    {line}" for line in body.splitlines())
    assert set(mutants(tmp_path, f"def f(a):{lines}\n")) == expected


def test_a_mutant_has_one_change(tmp_path: Path) -> None:
    changed = mutants(tmp_path, "def f(a):\n    b(a)\n    b(a)\n")
    assert changed == {
        "without b(a)": "def f(a):\n    pass\n    b(a)",
        "without b(a) #2": "def f(a):\n    b(a)\n    pass",
    }


def test_only_functions_are_mutated(tmp_path: Path) -> None:
    assert mutants(tmp_path, "X = 3\nclass C:\n    y = 3\n") == {}


@pytest.mark.parametrize(
    ("results", "problem"),
    [
        ({"a": SURVIVED}, []),
        ({}, []),
        ({"a": KILLED}, ["equivalent.toml: a test notices a"]),
    ],
)
def test_a_mutant_that_a_test_notices_is_not_equivalent(
    results: dict[str, str], problem: list[str]
) -> None:
    assert problems_of(["a"], results, {"a": "the reason"}) == problem


def test_a_package_whose_tests_miss_more_than_a_twentieth_fails() -> None:
    def passes(noticed: int) -> bool:
        mutants = [str(number) for number in range(20)]
        results = dict.fromkeys(mutants, SURVIVED) | dict.fromkeys(mutants[:noticed], KILLED)
        return report_on(Target("storage", (), ()), mutants, results, {})

    assert [passes(19), passes(18)] == [True, False]


def test_a_listed_mutant_must_exist() -> None:
    assert problems_of(["a"], {}, {"b": "the reason"}) == ["equivalent.toml: there is no mutant b"]


def test_the_line_of_a_comprehension_is_that_of_its_loop(tmp_path: Path) -> None:
    """Python's tree has none for it; with another line, no test seems to reach the change."""
    file = tmp_path / "m.py"
    file.write_text("def f(a):\n    b(\n        c\n        for c in a\n        if c\n    )\n")
    lines = {one.line for one in mutants_of(file, "m.py") if ": for c:" in one.id}
    assert lines == {4}


@pytest.mark.parametrize("word", ["if", "while"])
def test_the_line_of_a_condition_is_that_of_its_expression(tmp_path: Path, word: str) -> None:
    """A line with nothing but `if (` runs no code, so no test seems to reach it."""
    file = tmp_path / "m.py"
    file.write_text(f"def f(a):\n    {word} (\n        a\n        or b\n    ):\n        c()\n")
    lines = {one.line for one in mutants_of(file, "m.py") if f": {word} " in one.id}
    assert lines == {3}


def test_a_run_whose_tests_fail_without_a_mutant_is_no_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its stored results would be replaced by none, and the score printed as if it were today's."""
    monkeypatch.setenv("SLUICEGATE_WORK", str(tmp_path))
    monkeypatch.setattr("tests.mutation.__main__.run", lambda *_: 4)
    assert main(["protocol"]) == 1
    assert not list(tmp_path.rglob("*.json"))


def test_an_interrupted_run_keeps_what_it_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(_target: object, mutants: Sequence[Mutant], report: Report, _end: float) -> int:
        report(mutants[0], KILLED)
        return 2

    monkeypatch.setenv("SLUICEGATE_WORK", str(tmp_path))
    monkeypatch.setattr("tests.mutation.__main__.run", interrupted)
    main(["protocol"])
    (stored,) = tmp_path.rglob("protocol.json")
    assert list(json.loads(stored.read_text()).values()) == [KILLED]


RUN = """
import sys, pytest
from tests.mutation.runner import Session, Target

class WithoutMutants(Session):
    def pytest_runtestloop(self, session):
        return None

plugin = WithoutMutants(Target("t", (), ()), [], print, 0.0)
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", sys.argv[1]], plugins=[plugin]))
"""

SLOW_TEST = """
import time
from hypothesis import given, strategies

tried = []

@given(strategies.integers())
def test_a(number):
    tried.append(number)
    time.sleep(0.3 if len(tried) == 1 else 0)

def test_b():
    assert len(tried) == 20
"""


def test_a_slow_machine_fails_no_test_and_kills_no_mutant(tmp_path: Path) -> None:
    """Hypothesis fails a test whose examples take more than 200 ms; and it tries a hundred of them."""
    (tmp_path / "test_slow.py").write_text(SLOW_TEST)
    ended = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "test_slow.py")],
        cwd=ROOT,
        env={**os.environ, "SLUICEGATE_WORK": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
