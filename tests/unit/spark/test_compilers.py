"""The priority of a JVM's compilers."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from sluicegate.spark.compilers import lower_priority


def test_only_the_priority_of_compilers_is_lowered() -> None:
    """Tasks then run first on a machine whose processors are busy."""
    nice: dict[str, int] = {}
    named, lowered = threading.Barrier(3), threading.Event()

    def run(name: str) -> None:
        thread = threading.get_native_id()
        Path(f"/proc/self/task/{thread}/comm").write_text(name)
        named.wait(5)
        assert lowered.wait(5)
        nice[name] = os.getpriority(os.PRIO_PROCESS, thread)

    names = ("C2 CompilerThre", "Executor task l")
    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    named.wait(5)
    lower_priority(os.getpid())
    lowered.set()
    for thread in threads:
        thread.join()
    assert nice == {"C2 CompilerThre": 10, "Executor task l": 0}


def test_a_jvm_that_has_ended_or_a_system_without_proc_changes_nothing() -> None:
    lower_priority(2**22 + 1)  # above the largest process id of Linux
