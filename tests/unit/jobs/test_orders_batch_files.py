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


def test_the_byte_order_mark_of_a_file_belongs_to_no_line(tmp_path: Path) -> None:
    """Hadoop drops it at the beginning of a file, also of a compressed one."""
    mark = b"\xef\xbb\xbf"
    (tmp_path / "a.jsonl").write_bytes(mark + b"one\r\n" + mark + b"two\n")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(mark + b"gzip\n"))
    (tmp_path / "c.jsonl.bz2").write_bytes(bz2.compress(mark + b"bzip2\n"))
    (tmp_path / "d.jsonl").write_bytes(mark)
    (tmp_path / "e.jsonl").write_bytes(mark + b"\n")
    (tmp_path / "f.jsonl").write_bytes(b"\r\nf")
    lines = [b"one", mark + b"two", b"gzip", b"bzip2", b"", b"", b"f"]
    assert list(_lines(tmp_path)) == lines
