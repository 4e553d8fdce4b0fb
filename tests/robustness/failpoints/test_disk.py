"""The disk of a run's machine after a power cut."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from tests.integration.power_cuts import make_disk
from tests.robustness.failpoints.disk import lose_power


def _write(file: Path, *, flush: bool) -> None:
    with file.open("wb") as output:
        output.write(file.name.encode())
        if flush:
            output.flush()
            os.fsync(output.fileno())


def test_a_power_cut_leaves_what_was_flushed_and_the_disk_can_be_used_again(
    tmp_path: Path,
) -> None:
    image = tmp_path / "disk.img"
    with ExitStack() as stack:
        disk = make_disk(image, tmp_path / "disk", stack)
        for cut in range(2):
            _write(disk / f"flushed-{cut}", flush=True)
            _write(disk / f"lost-{cut}", flush=False)
            lose_power(image, disk)
        left = {file.name: file.read_text() for file in disk.glob("*-*")}
    assert left == {name: name for name in ("flushed-0", "flushed-1")}
