"""helm, kind and kubectl: a tool on the PATH is used if its minor version is ours."""

from pathlib import Path

import pytest

from infra.toolchain import go_programs
from infra.toolchain.go_build import BuildError
from infra.versions import HELM


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's own tools, first on the PATH; nothing can be built."""
    monkeypatch.setenv("SLUICEGATE_WORK", str(tmp_path / "work"))
    monkeypatch.setenv("SLUICEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(go_programs.NO_CLUSTER, "1")
    monkeypatch.setenv("PATH", str(tmp_path / "own"), prepend=":")
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def put(folder: Path, version: str) -> Path:
    helm = folder / "helm"
    helm.write_text(f"#!/bin/sh\necho v{version}+g0000000\n")
    helm.chmod(0o755)
    return helm


def test_a_tool_of_our_minor_version_is_linked(own: Path) -> None:
    helm = put(own, HELM.rpartition(".")[0] + ".99")
    assert go_programs.link_tool("helm") == go_programs.bin_folder() / "helm"
    assert go_programs.link_tool("helm").readlink() == helm


def test_a_tool_of_another_version_is_ignored(own: Path) -> None:
    put(own, "3.1.0")
    with pytest.raises(BuildError, match=go_programs.NO_CLUSTER):
        go_programs.link_tool("helm")
    assert go_programs.tool_missing_reason("helm")


def test_a_built_tool_is_preferred(own: Path) -> None:
    put(own, HELM)
    go_programs.HELM.binary.parent.mkdir(parents=True)
    go_programs.HELM.binary.touch()
    assert go_programs.link_tool("helm").readlink() == go_programs.HELM.binary
    assert go_programs.tool_missing_reason("helm") == ""


def test_a_link_is_renewed_when_the_tool_moves(own: Path) -> None:
    put(own, HELM)
    go_programs.link_tool("helm")
    go_programs.HELM.binary.parent.mkdir(parents=True)
    go_programs.HELM.binary.touch()
    assert go_programs.link_tool("helm").readlink() == go_programs.HELM.binary


def test_a_missing_tool_is_an_error_with_its_reason(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(own, "3.1.0")
    assert go_programs.main(["helm"]) == 1
    assert "Going on without helm" in capsys.readouterr().err
