"""A disk of the checkpoint, or of the store, becomes full: once it has space the job goes on and is exact."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from infra.local_services import Services
from infra.local_services.s3 import S3Server
from tests.robustness.failpoints.disk import full_disk
from tests.robustness.traffic.ip_count_harness import (
    DRIVER_TIMEOUT_S,
    EPOCH_LINES,
    LINES,
    RunningDriver,
    Scenario,
    access_lines,
    command_of,
    count_unparsed,
    feed,
    new_log_file,
    new_scenario,
    start,
)
from tests.robustness.traffic.late_lines import possibly_late

_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
_FULL_S = 15.0

ALL_LINES = access_lines(2 * LINES)


def _may_mount() -> bool:
    """Return whether this user may mount a file system that only its own processes see."""
    if shutil.which("unshare") is None:
        return False
    command = [*_NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.skipif(
        not _may_mount(), reason="this user may not mount a file system in a namespace"
    ),
]


def _small_disk(folder: Path, *folders: str) -> list[str]:
    """Return a command that executes another one, for which a folder is a disk of 32 MB with some folders."""
    made = " && ".join(f'mkdir -p "$0/{name}"' for name in ("", *folders))
    mount = f'mount -t tmpfs -o size=32m tmpfs "$0" && {made} && exec "$@"'
    return [*_NAMESPACE, "sh", "-c", mount, str(folder)]


def _seen(pid: int, folder: Path) -> Path:
    """Return the address of a folder as a process sees it."""
    return Path(f"/proc/{pid}/root") / folder.relative_to("/")


class _StoreOnSmallDisk(S3Server):
    """A store whose objects are on a small disk."""

    def _prepare(self) -> list[str]:
        command = super()._prepare()
        return [*_small_disk(self._folder / "s3", "objects/sluicegate", "metadata"), *command]


def _new_scenario(services: Services, folder: Path, checkpoint: str) -> Scenario:
    return new_scenario(
        services,
        folder,
        lines=ALL_LINES[:LINES],
        checkpoint=checkpoint,
        interval="200 milliseconds",
        restart_attempts=100,
        restart_delay_s=1.0,
    )


def _finish(driver: RunningDriver, scenario: Scenario) -> None:
    """Wait until a job has read everything, check its sinks, and stop it."""
    deadline = time.monotonic() + DRIVER_TIMEOUT_S
    while not scenario.all_read():
        assert driver.process.poll() is None, driver.text()
        assert time.monotonic() < deadline, driver.text()
        time.sleep(0.5)
    late = possibly_late(ALL_LINES, epoch_lines=EPOCH_LINES)
    scenario.check_exact(len(ALL_LINES), unparsed=count_unparsed(ALL_LINES), late=late)
    driver.process.terminate()
    stopped = driver.wait()
    assert stopped.code == 0, stopped.log


def test_a_job_whose_checkpoint_was_on_a_full_disk_goes_on_and_is_exact(
    services: Services, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    scenario = _new_scenario(services, tmp_path, str(disk / "checkpoint"))
    command = command_of("ip_count", scenario.settings, supervised=True)
    driver = start(command, new_log_file(tmp_path), within=_small_disk(disk))
    try:
        driver.wait_for("epoch 1 committed")
        seen = _seen(driver.process.pid, disk)
        with full_disk(seen / "filler"):
            feed(scenario.settings.kafka, scenario.settings.source, ALL_LINES[LINES:])
            driver.wait_for("No space left on device")
            time.sleep(_FULL_S)
        _finish(driver, scenario.with_settings(checkpoint=str(seen / "checkpoint")))
    finally:
        driver.kill()


def test_a_job_whose_store_had_a_full_disk_goes_on_and_is_exact(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _StoreOnSmallDisk(tmp_path / "store")
    store.start()
    try:
        for name, value in store.endpoint.environment().items():
            monkeypatch.setenv(name, value)
        scenario = _new_scenario(services, tmp_path, f"{store.endpoint.url}/run")
        driver = scenario.start(supervised=True)
        try:
            driver.wait_for("epoch 1 committed")
            assert store.pid is not None
            filler = _seen(store.pid, tmp_path) / "store" / "s3" / "filler"
            with full_disk(filler):
                feed(scenario.settings.kafka, scenario.settings.source, ALL_LINES[LINES:])
                time.sleep(_FULL_S)
                assert not scenario.all_read()
            _finish(driver, scenario)
        finally:
            driver.kill()
    finally:
        store.stop()
