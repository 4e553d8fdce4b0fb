"""The parent of Spark's Python workers, without the archives that slow each of their tasks.

Spark puts pyspark.zip and its core jar on its workers' path, and a worker calls
`importlib.invalidate_caches` at the start of every task; Python (up to 3.12 at least) then reads
the whole directory of each archive anew: 0.2 s a task, measured with py-spy. Where pyspark is
installed as a package neither is needed. Named by `session` as spark.python.daemon.module;
otherwise it is pyspark's own daemon. Archives given with --py-files are not touched: a worker adds
those itself, later.
"""

import importlib.machinery
import sys

_ARCHIVES = (".zip", ".jar")


def drop_archives() -> None:
    """Take archives off the path if pyspark is found without them."""
    kept = [entry for entry in sys.path if not entry.endswith(_ARCHIVES)]
    if importlib.machinery.PathFinder.find_spec("pyspark", kept) is None:
        return
    sys.path[:] = kept
    for entry in [e for e in sys.path_importer_cache if e.endswith(_ARCHIVES)]:
        del sys.path_importer_cache[entry]


if __name__ == "__main__":
    drop_archives()
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]
