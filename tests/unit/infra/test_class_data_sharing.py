"""The recording of the class archive, whose driver is a process of its own."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from infra import class_data_sharing
from infra.local_services import ServiceError


def test_a_recording_that_hangs_ends_with_its_reason_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is optional: its failure must not end `make`."""
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 600\n")
    hanging.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(hanging))
    monkeypatch.setattr(class_data_sharing, "_PATIENCE_S", 0.2)
    with pytest.raises(ServiceError, match="did not end in"):
        class_data_sharing._drive(tmp_path, "localhost:1")
    left = [child for child in psutil.Process().children() if child.status() != "zombie"]
    assert not [child for child in left if "600" in child.cmdline()]
