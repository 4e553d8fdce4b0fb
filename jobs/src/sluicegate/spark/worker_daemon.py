"""The parent of Spark's Python workers, without the zip files that slow each of their tasks.

Spark puts pyspark.zip on its workers' path, and a worker calls `importlib.invalidate_caches` at
the start of every task; Python (up to 3.12 at least) then reads the whole directory of each zip
anew: 0.2 s a task, measured with py-spy. Where pyspark is installed as a package the zip is not
needed. Named by `session` as spark.python.daemon.module; otherwise it is pyspark's own daemon.
"""

import importlib.machinery
import sys


def drop_zips() -> None:
    """Take zip files off the path if pyspark is found without them."""
    kept = [entry for entry in sys.path if not entry.endswith(".zip")]
    if importlib.machinery.PathFinder.find_spec("pyspark", kept) is None:
        return
    sys.path[:] = kept
    for entry in [e for e in sys.path_importer_cache if e.endswith(".zip")]:
        del sys.path_importer_cache[entry]


if __name__ == "__main__":
    drop_zips()
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]
