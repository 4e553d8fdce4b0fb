"""Runs tests against mutants: pytest collects once, and each mutant is a fork of that process.

The fork replaces the code of the changed function and runs the tests that reach the changed line,
quickest first, until one fails. Nothing is written to the sources.
"""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final, NoReturn

import coverage
import pytest
from _pytest.runner import runtestprotocol

from infra.workspace import work_folder
from tests.mutation.mutations import Mutant, mutants_of

ROOT: Final = Path(__file__).parents[2]
MINIMUM_S: Final = 5.0
"""A mutant may at least take this long; more if its tests do."""

KILLED, SURVIVED, TIMEOUT, UNREACHED, INVALID = (
    "killed",
    "survived",
    "timeout",
    "unreached",
    "invalid",
)


@dataclass(frozen=True)
class Target:
    """A package, and the tests that must notice its mutants.

    Args:
        name: for the command.
        sources: folders or files below the root.
        tests: arguments of pytest.
        min_score: which part of the mutants they must notice.
    """

    name: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    min_score: float = 0.95

    def mutants(self) -> Iterator[Mutant]:
        """Yield the mutants of all sources."""
        for source in self.sources:
            path = ROOT / source
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                yield from mutants_of(file, str(file.relative_to(ROOT)))

    def key(self, test: Path) -> str:
        """Return what changes when the sources or a file of tests change."""
        digest = hashlib.sha256()
        for source in (*self.sources, str(test.relative_to(ROOT))):
            path = ROOT / source
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                digest.update(file.read_bytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Measured:
    """What a test reaches, and how long it runs."""

    key: str
    duration_s: float
    lines: frozenset[tuple[str, int]]


class Session:
    """A pytest plugin that runs mutants instead of tests.

    Args:
        mutants: to be run, in this order.
        report: called with each result.
        end_s: when to stop, by `time.monotonic`; the mutants that are left have no result.
    """

    def __init__(
        self,
        target: Target,
        mutants: Sequence[Mutant],
        report: Callable[[Mutant, str], None],
        end_s: float,
    ) -> None:
        self._target, self._mutants, self._report, self._end_s = target, mutants, report, end_s
        self._memory = work_folder() / "mutants" / f"{target.name}.coverage"
        self._memory.parent.mkdir(parents=True, exist_ok=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Generate few examples: a test reads the settings of Hypothesis when it is imported."""
        _generate_few_examples()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests once for their coverage and duration, then each mutant."""
        if session.testsfailed:
            raise pytest.UsageError("the tests cannot be collected")
        gc.unfreeze()  # a package that ran before has frozen the functions of this one
        self._functions = _functions()
        gc.freeze()
        reached, durations = self._coverage(session.items)
        items = {item.nodeid: item for item in session.items}
        for mutant in self._mutants:
            if time.monotonic() > self._end_s:
                break
            tests = sorted(reached.get(_place(mutant), ()), key=durations.__getitem__)
            self._report(mutant, self._run(mutant, [items[test] for test in tests], durations))
        return True

    def _coverage(
        self, items: list[pytest.Item]
    ) -> tuple[dict[tuple[str, int], list[str]], dict[str, float]]:
        """Return which tests reach a line, and how long each runs; measure only what changed."""
        known = pickle.loads(self._memory.read_bytes()) if self._memory.exists() else {}  # noqa: S301
        keys = {item.nodeid: self._target.key(item.path) for item in items}
        known = {name: one for name, one in known.items() if keys.get(name) == one.key}
        new = [item for item in items if item.nodeid not in known]
        if new:
            answer = _in_fork(lambda: _measured(new, keys, self._end_s), 1200)
            if answer is None:
                raise pytest.UsageError("a test without a mutation fails, or none of them ends")
            known |= pickle.loads(answer)  # noqa: S301 - written by our own fork
            self._memory.write_bytes(pickle.dumps(known))
        if len(known) < len(items):
            raise pytest.UsageError("the time is over before all tests are measured; run it again")
        reached: dict[tuple[str, int], list[str]] = {}
        for name, one in known.items():
            for line in one.lines:
                reached.setdefault(line, []).append(name)
        return reached, {name: one.duration_s for name, one in known.items()}

    def _run(self, mutant: Mutant, items: list[pytest.Item], durations: dict[str, float]) -> str:
        if not items:
            return UNREACHED
        functions = self._functions.get((str(_file(mutant)), mutant.function), [])
        if not functions:
            return INVALID
        limit = MINIMUM_S + 5 * sum(durations[item.nodeid] for item in items)
        answer = _in_fork(lambda: _judged(mutant, functions, items), limit)
        return TIMEOUT if answer is None else answer.decode()


def _generate_few_examples() -> None:
    """Let Hypothesis generate few examples; a mutant that needs more is worth a test of its own."""
    import hypothesis  # noqa: PLC0415 - pytest rewrites its asserts, so it must not be imported before

    hypothesis.settings.register_profile(
        "mutants",
        max_examples=20,
        derandomize=True,
        database=None,
        # on a busy machine these two would fail tests, and so kill mutants that no test notices
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    hypothesis.settings.load_profile("mutants")


def _place(mutant: Mutant) -> tuple[str, int]:
    return mutant.id.split(":")[0], mutant.line


def _judged(mutant: Mutant, functions: list[FunctionType], items: list[pytest.Item]) -> bytes:
    try:
        code = code_of(mutant)
        for function in functions:
            function.__code__ = code
    except (LookupError, SyntaxError, ValueError):
        return INVALID.encode()
    try:
        failed = any(_fails(item) for item in items)
    except BaseException:  # noqa: BLE001 - a mutant that ends the process is noticed too
        failed = True
    return (KILLED if failed else SURVIVED).encode()


def _fails(item: pytest.Item) -> bool:
    reports = runtestprotocol(item, log=False, nextitem=None)
    return any(report.failed for report in reports)


def _functions() -> dict[tuple[str, str], list[FunctionType]]:
    """Return the functions of this process by file and qualified name."""
    found: dict[tuple[str, str], list[FunctionType]] = {}
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            place = one.__code__.co_filename, one.__code__.co_qualname
            found.setdefault(place, []).append(one)
    return found


def code_of(mutant: Mutant) -> CodeType:
    """Compile the changed function."""
    return _codes(compile(mutant.code(), str(_file(mutant)), "exec"))[mutant.function]


def _file(mutant: Mutant) -> Path:
    return ROOT / mutant.id.split(":")[0]


def _codes(code: CodeType) -> dict[str, CodeType]:
    found = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found[constant.co_qualname] = constant
            found |= _codes(constant)
    return found


def _measured(items: list[pytest.Item], keys: dict[str, str], end_s: float) -> bytes:
    """Run tests under coverage until the time is over."""
    sources = [str(ROOT / "jobs/src"), str(ROOT / "operators/src")]
    cover = coverage.Coverage(data_file=None, config_file=False, source=sources)
    durations: dict[str, float] = {}
    cover.start()
    for item in items:
        if time.monotonic() > end_s:
            break
        cover.switch_context(item.nodeid)
        began = time.monotonic()
        if _fails(item):
            raise RuntimeError(item.nodeid)
        durations[item.nodeid] = time.monotonic() - began
    cover.stop()
    lines: dict[str, set[tuple[str, int]]] = {name: set() for name in durations}
    data = cover.get_data()
    for file in data.measured_files():
        name = str(Path(file).relative_to(ROOT))
        for line, tests in data.contexts_by_lineno(file).items():
            for test in tests:
                if test:
                    lines[test].add((name, line))
    return pickle.dumps(
        {
            test: Measured(keys[test], duration_s, frozenset(lines[test]))
            for test, duration_s in durations.items()
        }
    )


def _in_fork(task: Callable[[], bytes], limit_s: float) -> bytes | None:
    """Return what a task returns in a fork of this process; None if it takes too long.

    The limit is of CPU time; on a busy machine it may last ten times as long.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(task, writing, limit_s)
    os.close(writing)
    answer, end = b"", time.monotonic() + 10 * limit_s
    while select.select([reading], [], [], max(0.0, end - time.monotonic()))[0]:
        piece = os.read(reading, 1 << 16)
        if not piece:
            break
        answer += piece
    else:
        answer = b""
    os.close(reading)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return answer or None


def _child(task: Callable[[], bytes], writing: int, limit_s: float) -> NoReturn:
    """Run a task; an endless mutant ends by itself, even if nobody waits for it any more."""
    os.setsid()
    seconds = int(limit_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    try:
        with os.fdopen(writing, "wb") as file:
            file.write(task())
    finally:
        os._exit(0)


def run(
    target: Target, mutants: Sequence[Mutant], report: Callable[[Mutant, str], None], end_s: float
) -> int:
    """Run the tests of a target against mutants; return pytest's exit code."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0"]
    return int(
        pytest.main(
            [*options, "-m", "not integration and not slow", *target.tests],
            plugins=[Session(target, mutants, report, end_s)],
        )
    )
