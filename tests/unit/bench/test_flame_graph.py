"""Flame graphs show where the time of a profiled run goes, and their files stay small."""

from __future__ import annotations

import re
from xml.dom.minidom import parseString

from tests.bench.flame_graph import from_text, pruned, svg, to_text
from tests.bench.profiling import jvm_stacks, python_stacks


def test_the_middle_of_a_chain_of_calls_is_left_out_and_no_time_is_lost() -> None:
    stacks = {("JVM", "run", "call", "call", "parse"): 96, ("JVM", "run"): 2, ("JVM", "gc"): 50}
    assert pruned(stacks) == {("JVM", "run", "parse"): 96, ("JVM", "run"): 2, ("JVM", "gc"): 50}


def test_the_time_of_a_narrow_frame_stays_with_its_caller() -> None:
    stacks = {("JVM", "run"): 600, ("JVM", "run", "rare"): 2, ("JVM", "gc"): 400}
    assert pruned(stacks) == {("JVM", "run"): 602, ("JVM", "gc"): 400}


def test_stacks_are_read_as_they_are_written() -> None:
    stacks = {("JVM", "a b"): 3, ("JVM", "a b", "c"): 4}
    assert from_text(to_text(stacks)) == stacks


def test_a_flame_graph_is_svg_with_the_share_of_each_frame() -> None:
    drawn = svg("copy <1>", {("JVM", "List<T>.add"): 3, ("Python workers",): 1})
    parseString(drawn)  # noqa: S318 - drawn above
    assert re.findall("<title>(.*?)</title>", drawn) == [
        "JVM: 75.0 %",
        "List&lt;T&gt;.add: 75.0 %",
        "Python workers: 25.0 %",
    ]


def test_stacks_name_neither_command_lines_nor_addresses() -> None:
    assert jvm_stacks(["Run.call;Task$$Lambda$41.0x00007f81205.apply 3"]) == {
        ("JVM", "Run.call", "Task$$Lambda.apply"): 15
    }
    driver = 'process 1:"python -m job /home/me";main (job.py:1) 2'
    worker = 'process 1:"python -m job";process 2:"python -m sluicegate.spark.worker_daemon";f 1'
    assert python_stacks([driver, worker]) == {
        ("Python of the driver", "main (job.py:1)"): 20,
        ("Python workers", "f"): 10,
    }
