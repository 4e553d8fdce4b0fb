"""What a soak reads of a checkpoint, with the store that the platform has."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid

from infra.local_services import S3Endpoint
from sluicegate.storage.object_store import open_store
from tests.soak.samples import CHECKPOINT


def test_the_objects_of_a_checkpoint_are_counted_by_folder_and_its_epoch_log_measured(
    bucket: S3Endpoint,
) -> None:
    url = f"{bucket.url}/{uuid.uuid4().hex}"
    store = open_store(url)
    for name in ("epochs/7", "epochs/8", "staging/8/a/part", "lineage.json"):
        store.create(name, name.encode())
    command = [sys.executable, "-c", CHECKPOINT, url, "-1"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert json.loads(printed) == {
        "folders": {"epochs": 2, "staging": 1, "lineage.json": 1},
        "epochs_bytes": len("epochs/7epochs/8"),
        "applied": {},
    }
