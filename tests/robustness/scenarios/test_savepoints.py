"""A savepoint moves a running job with Kafka and MySQL; every row is delivered exactly once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from infra.local_services import Services
from sluicegate.cli.app import app
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import open_store
from tests.robustness.traffic.ip_count_harness import PATIENCE_S, Scene, access_lines, feed, scene

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # four drivers, one after another
]

LINES = access_lines()
HALF = 600


@pytest.fixture
def played(services: Services, tmp_path: Path) -> Iterator[Scene]:
    """Yield a scene with the first half of the lines, whose job runs until it is stopped."""
    with scene(services, tmp_path, lines=LINES[:HALF], interval="0 seconds") as running:
        yield running


def cli(*arguments: object) -> Result:
    """Run the command as a user does."""
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def test_a_running_job_is_moved_exactly_once_and_its_parent_stays_sealed(played: Scene) -> None:
    """Epochs overlap, so the last one is not yet applied when the stop is requested."""
    played = played.but(overlap=True)
    folder = played.folder / "savepoints"
    running = played.start(supervised=True)
    running.wait_for("epoch 1 committed")
    feeding = threading.Thread(  # more input arrives during the stop
        target=feed, args=(played.settings.kafka, played.settings.source, LINES[HALF:])
    )
    feeding.start()
    stopped = cli("stop", played.checkpoint, "--savepoint", folder, "--timeout", PATIENCE_S)
    feeding.join()
    assert stopped.exit_code == 0, stopped.output + running.text()
    ended = running.wait()
    assert ended.code == 0, ended.log
    listed = cli("savepoint", "list", folder).output
    assert "moves the job" in listed

    parent = played.run()
    assert parent.code == 65, parent.log
    assert "Sealed: " in parent.log

    moved = played.but(checkpoint=str(played.folder / "moved"), interval="available-now")
    restored = cli("savepoint", "restore", listed.split()[0], moved.checkpoint)
    assert restored.exit_code == 0, restored.output
    done = moved.run()
    assert done.code == 0, done.log
    checked = moved.check_exact(len(LINES))
    assert "pruned epochs, whose records are not counted" not in checked
    lineage = read_lineage(open_store(str(moved.checkpoint)))
    assert lineage is not None
    assert done.epochs("committed")[0] == lineage.first_epoch


def test_a_killed_moved_job_is_exact_and_a_second_successor_is_fenced(
    played: Scene,
) -> None:
    """It dies after it has taken over the parent's sinks, when one sink has its first epoch.

    The second successor starts from a copy of the savepoint, which has no trace of the first; Kafka has.
    """
    whole = played.but(interval="available-now")
    assert whole.run().code == 0
    taken = cli("savepoint", "take", whole.checkpoint, played.folder / "savepoints", "--seal")
    assert taken.exit_code == 0, taken.output
    copied = played.folder / "copied"
    shutil.copytree(taken.output.split()[0], copied)

    moved = whole.but(checkpoint=str(played.folder / "moved"))
    assert cli("savepoint", "restore", taken.output.split()[0], moved.checkpoint).exit_code == 0
    feed(played.settings.kafka, played.settings.source, LINES[HALF:])
    sink = moved.sinks["kafka"]
    killed = moved.run(f"after-apply:{sink}=kill-group~{played.folder / 'once'}")
    assert killed.code == -9, killed.log

    second = whole.but(checkpoint=str(played.folder / "second"))
    assert cli("savepoint", "restore", copied, second.checkpoint).exit_code == 0
    refused = second.run()
    assert refused.code == 65, refused.log
    assert "taken over by lineage" in refused.log

    assert moved.run().code == 0
    moved.check_exact(len(LINES))
