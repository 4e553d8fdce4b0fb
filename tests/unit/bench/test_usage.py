"""CPU time is read off between samples, and unknown outside of them; memory is that of all processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.bench.usage import Usage, sampling

USED = Usage(cpu=[(1000.0, 1.0), (2000.0, 3.0), (3000.0, 3.5)])

TWO_PROCESSES = "import os; held = b'x' * (64 << 20); os.fork(); print(flush=True); input()"


def test_time_between_samples_is_on_the_line_between_them() -> None:
    assert USED.figures(1500.0, 2500.0, 1)["cpu_us"] == pytest.approx(1.25e6)


def test_a_moment_at_a_sample_is_that_sample() -> None:
    assert USED.figures(1500.0, 2000.0, 10)["cpu_us"] == pytest.approx(0.1e6)


@pytest.mark.parametrize(("begin_ms", "end_ms"), [(500.0, 2500.0), (1500.0, 3500.0)])
def test_what_the_samples_do_not_cover_is_unknown(begin_ms: float, end_ms: float) -> None:
    assert USED.figures(begin_ms, end_ms, 1) == {}


def test_without_samples_nothing_is_known() -> None:
    assert Usage().figures(1.0, 2.0, 1) == {}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_memory_that_two_processes_share_counts_once() -> None:
    command = [sys.executable, "-c", TWO_PROCESSES]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        for _ in range(2):  # neither ends before it has input
            process.stdout.readline()
        with sampling(process.pid) as used, pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.stdin.write(b"\n\n")
        process.stdin.close()
    assert 64 <= used.peak_bytes / (1 << 20) < 100
