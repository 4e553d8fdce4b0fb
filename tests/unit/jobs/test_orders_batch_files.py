"""`verify orders_batch` reads the files that Spark reads, and their lines."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

from sluicegate_jobs.orders.batch_verify import _lines


def test_files_are_read_as_spark_reads_them(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "not-read.jsonl").write_bytes(b"no")
    (tmp_path / ".hidden.jsonl").write_bytes(b"no")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"gzip\n"))
    (tmp_path / "b.jsonl.bz2").write_bytes(bz2.compress(b"bzip2"))
    (tmp_path / "c.jsonl").write_bytes(b"one\rtwo\r\nthree\n\nfour \xff")
    (tmp_path / "day=1" / "d.jsonl").write_bytes(b"partition\n")
    assert list(_lines(tmp_path)) == [
        *(b"gzip", b"bzip2"),
        *(b"one", b"two", b"three", b"", b"four \xff"),
        b"partition",
    ]
