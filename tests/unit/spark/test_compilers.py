"""The priority of a JVM's compilers."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from sluicegate.spark.compilers import lower_priority


def test_only_the_priority_of_compilers_is_changed_and_never_raised() -> None:
    """Raising it again, in a job that was started with `nice`, would need a permission."""
    nice: dict[str, int] = {}
    named, lowered = threading.Barrier(4), threading.Event()

    def run(name: str) -> None:
        thread = threading.get_native_id()
        Path(f"/proc/self/task/{thread}/comm").write_text(name)
        if name == "C1 CompilerThre":
            os.setpriority(os.PRIO_PROCESS, thread, 15)
        named.wait(5)
        assert lowered.wait(5)
        nice[name] = os.getpriority(os.PRIO_PROCESS, thread)

    names = ("C2 CompilerThre", "C1 CompilerThre", "Executor task l")
    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    named.wait(5)
    lower_priority(os.getpid())
    lowered.set()
    for thread in threads:
        thread.join()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert nice == {"C2 CompilerThre": max(10, own), "C1 CompilerThre": 15, "Executor task l": own}


def test_a_jvm_that_has_ended_or_a_system_without_proc_changes_nothing() -> None:
    lower_priority(2**22 + 1)  # above the largest process id of Linux
