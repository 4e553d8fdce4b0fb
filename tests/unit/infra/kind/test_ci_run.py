"""`.ci/run` ends with 0 without the tests of the platform only where nothing has failed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from infra.kind.__main__ import NO_CONTAINERS
from infra.workspace import CHECKOUT

PYTHON = """#!/bin/bash
case "$*" in
    "-m infra.kind unbuilt") echo Nothing must be built. ;;
    "-m infra.kind engine up") exit $ENGINE ;;
    "-m infra.kind build") exit $BUILD ;;
esac
"""
MAKE = '#!/bin/bash\n[ "$1" != e2e ] || exit $E2E\n'
GIT = "#!/bin/bash\necho 0123456789\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with the script, whose commands do nothing but end with the codes of a test."""
    programs = {".venv/bin/python": PYTHON, "bin/make": MAKE, "bin/git": GIT}
    for name, text in programs.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(CHECKOUT / ".ci" / "run", tmp_path / ".ci" / "run")
    return tmp_path


def run(checkout: Path, **variables: str) -> tuple[int, bool]:
    """Return the exit code, and whether the script says that it has left out the tests of the platform."""
    environment = {name: text for name, text in os.environ.items() if "SLUICEGATE" not in name}
    environment |= {"ENGINE": "0", "BUILD": "0", "E2E": "0", **variables}
    environment["PATH"] = os.pathsep.join([str(checkout / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        [checkout / ".ci" / "run"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return done.returncode, "NOT RUN: make e2e" in done.stdout


@pytest.mark.parametrize(
    ("variables", "code", "left_out"),
    [
        ({}, 0, False),
        ({"E2E": "2"}, 2, False),
        ({"SLUICEGATE_NO_CLUSTER": "1"}, 0, True),
        ({"ENGINE": str(NO_CONTAINERS)}, 0, True),
        ({"ENGINE": "1"}, 1, False),
        ({"ENGINE": str(NO_CONTAINERS), "BUILD": "1"}, 1, False),
    ],
    ids=[
        "all passes",
        "a test of the platform fails",
        "the cluster is not wanted",
        "no container can run",
        "the engine cannot be installed",
        "no container can run and the node cannot be built",
    ],
)
def test_only_a_machine_without_containers_or_a_variable_leaves_the_platform_out(
    checkout: Path,
    variables: dict[str, str],
    code: int,
    left_out: bool,  # noqa: FBT001
) -> None:
    assert run(checkout, **variables) == (code, left_out)
