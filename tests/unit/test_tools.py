"""infra/tools.py: a user's own tool is taken in our version, and no other."""

from pathlib import Path

import pytest

from infra import tools
from infra.gobuild import BuildError
from infra.versions import HELM


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's own tools, first on the PATH; nothing can be built."""
    monkeypatch.setenv("SLUICEGATE_WORK", str(tmp_path / "work"))
    monkeypatch.setenv("SLUICEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(tools.OFF_VARIABLE, "1")
    monkeypatch.setenv("PATH", str(tmp_path / "own"), prepend=":")
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def put(folder: Path, version: str) -> Path:
    helm = folder / "helm"
    helm.write_text(f"#!/bin/sh\necho v{version}+g0000000\n")
    helm.chmod(0o755)
    return helm


def test_one_of_our_minor_version_is_linked(own: Path) -> None:
    helm = put(own, HELM.rpartition(".")[0] + ".99")
    assert tools.tool("helm") == tools.folder() / "helm"
    assert tools.tool("helm").readlink() == helm


def test_one_of_another_version_is_not_taken(own: Path) -> None:
    put(own, "3.1.0")
    with pytest.raises(BuildError, match=tools.OFF_VARIABLE):
        tools.tool("helm")
    assert tools.gap("helm")


def test_ours_goes_before_a_users_own(own: Path) -> None:
    put(own, HELM)
    tools.HELM.binary.parent.mkdir(parents=True)
    tools.HELM.binary.touch()
    assert tools.tool("helm").readlink() == tools.HELM.binary
    assert tools.gap("helm") == ""


def test_a_link_is_renewed_when_the_tool_moves(own: Path) -> None:
    put(own, HELM)
    tools.tool("helm")
    tools.HELM.binary.parent.mkdir(parents=True)
    tools.HELM.binary.touch()
    assert tools.tool("helm").readlink() == tools.HELM.binary


def test_what_cannot_be_had_is_said_and_fails(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(own, "3.1.0")
    assert tools.main(["helm"]) == 1
    assert "Going on without helm" in capsys.readouterr().err
