"""A checkpoint on a disk that becomes full: the job goes on when there is space again, and is exact."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from infra.local_services import Services
from tests.robustness.traffic.ip_count_harness import (
    DRIVER_TIMEOUT_S,
    EPOCH_LINES,
    LINES,
    access_lines,
    command_of,
    count_unparsed,
    feed,
    new_log_file,
    new_scenario,
    start,
)
from tests.robustness.traffic.late_lines import possibly_late

pytestmark = [pytest.mark.faults, pytest.mark.slow]

_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
_FULL_S = 15.0


def _may_mount() -> bool:
    """Return whether this user may mount a file system that only its own processes see."""
    if shutil.which("unshare") is None:
        return False
    command = [*_NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _small_disk(folder: Path) -> list[str]:
    """Return a command that executes another one, for which a folder is a disk of 16 MB."""
    mount = 'mount -t tmpfs -o size=16m tmpfs "$0" && exec "$@"'
    return [*_NAMESPACE, "sh", "-c", mount, str(folder)]


def _fill(file: Path) -> None:
    """Write a file until its disk is full."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as content:
        while content.write(bytes(4096)):
            pass
    assert shutil.disk_usage(file.parent).free == 0


@pytest.mark.skipif(not _may_mount(), reason="this user may not mount a file system in a namespace")
def test_a_job_whose_checkpoint_was_on_a_full_disk_goes_on_and_is_exact(
    services: Services, tmp_path: Path
) -> None:
    disk, lines = tmp_path / "disk", access_lines(2 * LINES)
    disk.mkdir()
    scenario = new_scenario(
        services,
        tmp_path,
        lines=lines[:LINES],
        checkpoint=str(disk / "checkpoint"),
        interval="200 milliseconds",
        restart_attempts=100,
        restart_delay_s=1.0,
    )
    command = command_of("ip_count", scenario.settings, supervised=True)
    driver = start(command, new_log_file(tmp_path), within=_small_disk(disk))
    try:
        driver.wait_for("epoch 1 committed")
        seen = Path(f"/proc/{driver.process.pid}/root") / disk.relative_to("/")
        _fill(seen / "filler")
        feed(scenario.settings.kafka, scenario.settings.source, lines[LINES:])
        driver.wait_for("No space left on device")
        time.sleep(_FULL_S)
        (seen / "filler").unlink()
        found = scenario.with_settings(checkpoint=str(seen / "checkpoint"))
        deadline = time.monotonic() + DRIVER_TIMEOUT_S
        while not found.all_read():
            assert driver.process.poll() is None, driver.text()
            assert time.monotonic() < deadline, driver.text()
            time.sleep(0.5)
        late = possibly_late(lines, epoch_lines=EPOCH_LINES)
        found.check_exact(len(lines), unparsed=count_unparsed(lines), late=late)
        driver.process.terminate()
        stopped = driver.wait()
        assert stopped.code == 0, stopped.log
    finally:
        driver.kill()
