"""The parent process of Spark's Python workers, without the archives that slow down every task.

Spark adds pyspark.zip and its core jar to the path of its workers, and a worker calls
`importlib.invalidate_caches` at the start of every task. Python (at least up to 3.12) then reads the
whole directory of each archive again: 0.2 s per task, measured with py-spy. Neither is needed if
pyspark is installed as a package. Archives given with --py-files are not affected: a worker adds those
later, itself.

Workers do not receive SIGINT: at Ctrl-C a terminal sends it to all processes of a job, Spark's workers
would raise KeyboardInterrupt in the midst of an epoch, and the driver ends the job with its epoch.

A worker whose connection the JVM has closed ends without a traceback: its task was cancelled, or its
driver has ended. Spark 4.1 prints a BrokenPipeError for it, at about one Ctrl-C in five.

The daemon imports what every stage needs before it forks, so that its workers do not import it again.
It is a child of the JVM of the tasks, also in the pod of an executor, so it lowers the priority of that
JVM's compilers.

A module of its own, because spark.python.daemon.module names it (`session`).
"""

import importlib
import importlib.machinery
import os
import signal
import sys
from collections.abc import Callable
from functools import wraps

_ARCHIVES = (".zip", ".jar")

_OF_EACH_STAGE = ("pandas", "sluicegate.spark.staging")
"""What a worker imports in its first stage; Spark itself uses pandas for Arrow batches."""


def drop_archives() -> None:
    """Remove archives from the path if pyspark can be imported without them."""
    kept = [entry for entry in sys.path if not entry.endswith(_ARCHIVES)]
    if importlib.machinery.PathFinder.find_spec("pyspark", kept) is None:
        return
    sys.path[:] = kept
    for entry in [e for e in sys.path_importer_cache if e.endswith(_ARCHIVES)]:
        del sys.path_importer_cache[entry]


def import_for_workers() -> None:
    """Import what every stage needs, and let each worker that is forked draw its own random numbers.

    pandas loads `numpy.random`, whose state a fork copies: without a new seed all workers would draw the
    same numbers. Python's own `random` seeds itself in a fork.
    """
    for module in _OF_EACH_STAGE:
        importlib.import_module(module)
    import numpy as np  # noqa: PLC0415 - after the path is without archives

    os.register_at_fork(after_in_child=np.random.seed)


def ended_by_the_jvm(worker: Callable[..., int]) -> Callable[..., int]:
    """Let Spark's function `worker` return 1, the code of a failed task, if its connection is closed."""

    @wraps(worker)
    def run(*arguments: object) -> int:
        try:
            return worker(*arguments)
        except ConnectionError:
            return 1

    return run


if __name__ == "__main__":
    drop_archives()
    # blocked, which a fork inherits: each worker of Spark installs a handler
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    import_for_workers()
    from pyspark import daemon

    from sluicegate.spark.compilers import lower_priority

    lower_priority(os.getppid())
    daemon.worker = ended_by_the_jvm(daemon.worker)
    daemon.manager()  # type: ignore[no-untyped-call]
