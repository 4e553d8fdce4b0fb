"""A job with Kafka and MySQL is moved by a savepoint while it runs; the check finds every row once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from infra.embedded import Services
from sluicegate.cli.commands import app
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.objects import open_objects
from tests.faults.harness import PATIENCE_S, Scene, access_lines, feed, scene

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # four drivers, one after another
]

LINES = access_lines()
HALF = 600


@pytest.fixture
def played(services: Services, tmp_path: Path) -> Iterator[Scene]:
    """Give a scene with the first half of the lines, whose job goes on until it is stopped."""
    with scene(services, tmp_path, lines=LINES[:HALF], interval="0 seconds") as made:
        yield made


def cli(*arguments: object) -> Result:
    """Run the command as a user does."""
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def test_a_running_job_is_moved_exactly_and_its_parent_stays_out(played: Scene) -> None:
    """Overlap is on, so that the last epoch is still to be applied when the stop is asked for."""
    played = played.but(overlap=True)
    folder = played.folder / "savepoints"
    running = played.start(supervised=True)
    running.wait_for("epoch 1 committed")
    asked = threading.Thread(  # more input comes while it stops
        target=feed, args=(played.settings.kafka, played.settings.source, LINES[HALF:])
    )
    asked.start()
    stopped = cli("stop", played.checkpoint, "--savepoint", folder, "--timeout", PATIENCE_S)
    asked.join()
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
    lineage = read_lineage(open_objects(str(moved.checkpoint)))
    assert lineage is not None
    assert done.epochs("committed")[0] == lineage.first_epoch


def test_a_moved_job_that_is_killed_is_still_exact_and_a_second_successor_stays_out(
    played: Scene,
) -> None:
    """It dies when the parent's sinks are taken over and one holds its own first epoch.

    The second comes from a copy of the savepoint, which does not know of the first: Kafka does.
    """
    whole = played.but(interval="available-now")
    assert whole.run().code == 0
    made = cli("savepoint", "take", whole.checkpoint, played.folder / "savepoints", "--seal")
    assert made.exit_code == 0, made.output
    copied = played.folder / "copied"
    shutil.copytree(made.output.split()[0], copied)

    moved = whole.but(checkpoint=str(played.folder / "moved"))
    assert cli("savepoint", "restore", made.output.split()[0], moved.checkpoint).exit_code == 0
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
