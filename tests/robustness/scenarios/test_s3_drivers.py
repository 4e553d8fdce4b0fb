"""Drivers with their checkpoint on S3 are killed, refused and superseded; restarts are exact."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local_services import S3Endpoint, Services
from sluicegate.storage.object_store import open_store
from tests.robustness.failpoints.fault_matrix import chosen
from tests.robustness.failpoints.random_failpoint import Chance
from tests.robustness.failpoints.s3_proxy import Fault, proxied
from tests.robustness.traffic.ip_count_harness import Scene, scene

pytestmark = [pytest.mark.faults, pytest.mark.slow]

EPOCH = 2
"""The epoch that is killed; two epochs precede it and the rest follow."""

WHERE = [("after-stage", ""), ("after-decide", ""), ("before-commit", "mysql")]
"""Always tested; of the other points each run tests a random one."""


@pytest.fixture
def played(services: Services, bucket: S3Endpoint, tmp_path: Path) -> Iterator[Scene]:
    """Yield a scene with the default lines and its checkpoint on S3."""
    checkpoint = f"{bucket.url}/{uuid.uuid4().hex}"
    with scene(services, tmp_path, checkpoint=checkpoint) as made:
        yield made


def finish(played: Scene) -> None:
    """Process the remaining input in as few epochs as possible; assert that the result is exact."""
    ended = played.but(max_records=100_000).run()
    assert ended.code == 0, ended.log
    played.check_exact()


@pytest.mark.parametrize(("point", "sink"), chosen(WHERE, WHERE[1:2]))
def test_driver_killed_at_a_failpoint(played: Scene, point: str, sink: str) -> None:
    where = f"{point}{f':{played.sinks[sink]}' if sink else ''}@{EPOCH}"
    killed = played.run(f"{where}=kill-group")
    assert killed.code == -signal.SIGKILL, killed.log
    assert played.epoch_log().newest() == (EPOCH - 1 if point == "after-stage" else EPOCH)
    finish(played)


def test_driver_killed_at_a_random_failpoint(played: Scene) -> None:
    killed = played.run(f"{Chance().killed_at(range(4))}=kill-group")
    assert killed.code == -signal.SIGKILL, killed.log
    finish(played)


@pytest.mark.parametrize("name", ["commits/2", r"state/0/0/3\.changelog"])
def test_a_refused_write_stops_the_driver_and_the_next_continues(
    played: Scene, bucket: S3Endpoint, name: str
) -> None:
    """No file of Spark goes missing silently: the driver exits, and its supervisor restarts it."""
    with proxied(bucket) as proxy:
        proxy.faults.append(Fault("PUT", f"{name}$", "refuse"))
        ended = played.run(env=proxy.endpoint.environment())
        assert proxy.faults[0].met == 1
    assert ended.code == 1, ended.log
    assert "StageFailed" in ended.log
    finish(played)


def test_rule_17_a_zombie_on_s3_exits_fenced(played: Scene) -> None:
    """A driver that resumes after another has taken over exits Fenced; the result is exact."""
    zombie = played.but(timeout_s=0.0).start(f"after-stage@{EPOCH}=stop-group")
    try:
        zombie.wait_stopped()
        finish(played)
        zombie.signal_group(signal.SIGCONT)
        ended = zombie.wait()
    finally:
        zombie.kill()
    assert ended.code == 65, ended.log
    played.check_exact()


def test_a_checkpoint_on_s3_leaves_nothing_on_local_disk(played: Scene, tmp_path: Path) -> None:
    """Spark's logs, state and sources and our records are all in the bucket."""
    ended = played.but(max_records=100_000).run()
    assert ended.code == 0, ended.log
    folders = {n.split("/")[0] for n in open_store(played.settings.checkpoint).names("")}
    assert {"metadata", "offsets", "commits", "state", "epochs", "sources"} <= folders
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".log"}
