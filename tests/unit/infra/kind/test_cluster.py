"""infra/kind without a cluster: its settings, its choices, and what a node lacks."""

import json
import os
from pathlib import Path

import pytest

from infra.kind import cluster, load_images
from infra.kind.__main__ import NO_CONTAINERS, main
from infra.offline.kind_node import docker_engine, network
from infra.offline.kind_node.image_archive import ImageName
from infra.toolchain.go_build import BuildError, Program
from infra.toolchain.host import HostError, Steps, need


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLUICEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SLUICEGATE_WORK", str(tmp_path / "work"))
    monkeypatch.delenv(cluster.NODE_VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def no_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no commands at all, whose folder of commands is returned."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setattr("infra.toolchain.host.where", lambda name: _in(folder, name))
    monkeypatch.setattr(
        "infra.offline.kind_node.docker_engine.where", lambda name: _in(folder, name)
    )
    return folder


def _in(folder: Path, name: str) -> str | None:
    return str(folder / name) if (folder / name).is_file() else None


def test_the_kubeconfig_is_in_the_work_folder(folders: Path) -> None:
    assert cluster.kubeconfig() == folders / "work" / "kind" / "kubeconfig"


def test_the_cluster_has_one_node_and_listens_on_loopback_only() -> None:
    settings = cluster.settings()
    assert settings["nodes"] == [{"role": "control-plane"}]
    assert "networking" not in settings
    patches = settings["kubeadmConfigPatches"]
    assert isinstance(patches, list)
    kinds = {json.loads(patch)["kind"] for patch in patches}
    assert kinds == {"ClusterConfiguration", "KubeletConfiguration"}


def test_the_machines_own_engine_gets_the_stock_node() -> None:
    assert cluster.choice() == "stock"


def test_an_engine_of_this_project_gets_the_own_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_engine, "ours", lambda: 42)
    assert cluster.choice() == "own"


def test_unbuilt_programs_of_an_own_node_are_named(
    no_commands: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not list(no_commands.iterdir())
    assert main(["unbuilt"]) == 1
    assert "kube-apiserver" in capsys.readouterr().out


def test_the_stock_node_needs_no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cluster.NODE_VARIABLE, "stock")
    assert main(["unbuilt"]) == 0


def test_the_variable_overrides_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_engine, "ours", lambda: 42)
    monkeypatch.setenv(cluster.NODE_VARIABLE, "kindest/node:v1.36.0")
    assert cluster.choice() == "kindest/node:v1.36.0"


def test_an_own_node_needs_the_network_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "ours_to_set", lambda: False)
    monkeypatch.setattr(network, "make", lambda: pytest.fail("a network was made"))
    with pytest.raises(HostError, match="Nothing was started"):
        cluster._close(own=True)


def test_a_rule_that_is_not_enforced_stops_the_start(
    no_commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nft = no_commands / "nft"
    nft.write_text("#!/bin/sh\necho '{}'\n")
    nft.chmod(0o755)
    monkeypatch.setenv("PATH", str(no_commands), prepend=os.pathsep)
    monkeypatch.setattr(network, "ours_to_set", lambda: True)
    monkeypatch.setattr(network, "make", lambda: pytest.fail("a network was made"))
    with pytest.raises(HostError, match="does not list it"):
        cluster._close(own=True)


def test_without_root_the_error_names_what_is_missing(
    no_commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not list(no_commands.iterdir())
    monkeypatch.setattr("infra.toolchain.host.root", lambda: False)
    with pytest.raises(HostError) as raised:
        need({"nft": "nftables", "dockerd": "docker.io"})
    assert "dockerd, nft" in str(raised.value)
    assert "apt-get install docker.io nftables" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_without_an_engine_the_error_asks_to_start_one(
    no_commands: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not list(no_commands.iterdir())
    monkeypatch.setattr("infra.offline.kind_node.docker_engine.root", lambda: False)
    assert main(["engine", "up"]) == NO_CONTAINERS
    assert "Start Docker" in capsys.readouterr().err


def test_an_engine_that_does_not_start_runs_no_container(
    no_commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not one runs on this machine, whose files stay as they are."""
    monkeypatch.setenv("PATH", str(no_commands))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr("infra.offline.kind_node.docker_engine.folder", lambda: tmp_path / "engine")
    for name in ("dockerd", "iptables", "docker"):
        (no_commands / name).write_text("#!/bin/sh\nexit 1\n")
        (no_commands / name).chmod(0o755)
    monkeypatch.setattr("infra.offline.kind_node.docker_engine.root", lambda: True)
    monkeypatch.setattr("infra.offline.kind_node.docker_engine._wrapped", lambda: None)
    assert main(["engine", "up"]) == NO_CONTAINERS


def test_an_engine_that_cannot_be_installed_is_a_failure(
    no_commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not list(no_commands.iterdir())
    monkeypatch.setattr("infra.offline.kind_node.docker_engine.root", lambda: True)
    monkeypatch.setattr("infra.toolchain.host.root", lambda: False)
    assert main(["engine", "up"]) == 1


def test_a_node_that_cannot_be_built_is_a_failure_without_an_engine(
    no_commands: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not list(no_commands.iterdir())

    def fail(program: Program) -> None:
        raise BuildError(f"{program.name} could not be built")

    monkeypatch.setattr(Program, "build", fail)
    assert main(["build"]) == 1
    assert "could not be built" in capsys.readouterr().err


def test_a_capable_engine_runs_plain_runc() -> None:
    assert "runtimes" not in docker_engine.settings(None)


def test_an_own_engine_keeps_everything_in_one_folder(folders: Path) -> None:
    settings = docker_engine.settings(Path("/r"))
    assert settings["data-root"] == str(folders / "cache" / "engine" / "data")
    assert settings["default-runtime"] == "fitted"


def test_a_reused_process_id_is_not_the_own_engine() -> None:
    docker_engine.folder().mkdir(parents=True)
    (docker_engine.folder() / "dockerd.pid").write_text(str(os.getpid()))
    assert docker_engine.ours() is None
    assert not docker_engine.down()


COREFILE = """.:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
    }
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30
}
"""


def test_dns_denies_outside_names_only() -> None:
    first, last = cluster.denying(COREFILE).split("\n.:5353 {\n")
    assert first + "\n" == COREFILE.replace("/etc/resolv.conf", "127.0.0.1:5353")
    assert "rcode NXDOMAIN" in last


def test_an_unknown_corefile_is_an_error() -> None:
    with pytest.raises(HostError, match="not kubeadm's"):
        cluster.denying(COREFILE.replace("/etc/resolv.conf", "1.1.1.1"))


THERE = {"docker.io/a/b:1": "sha256:one"}


@pytest.mark.parametrize(
    ("image", "lacks"),
    [
        (ImageName("sha256:one", ("a/b:1",)), False),
        (ImageName("sha256:two", ("a/b:1",)), True),
        (ImageName("sha256:one", ("a/b:2",)), True),
    ],
)
def test_a_node_lacks_images_without_this_name_and_id(image: ImageName, lacks: bool) -> None:  # noqa: FBT001
    assert load_images.lacks([image], THERE) is lacks


def test_all_names_of_a_nodes_images_are_read() -> None:
    listed = {
        "images": [
            {"id": "sha256:one", "repoTags": ["x:1", "x:2"], "size": "3"},
            {"id": "sha256:two", "repoTags": None},
        ]
    }
    assert load_images.named(listed) == {"x:1": "sha256:one", "x:2": "sha256:one"}


def test_a_file_that_is_not_an_archive_is_named(folders: Path) -> None:
    (folders / "a.tar").write_text("no")
    with pytest.raises(HostError, match=r"a\.tar"):
        load_images._read(folders / "a.tar")


def test_steps_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps(2)
    steps.begin("first")
    steps.grow(1)
    steps.begin("second")
    assert capsys.readouterr().out == "1 of 2: first ...\n2 of 3: second ...\n"


@pytest.mark.usefixtures("no_commands")
def test_without_an_engine_the_rule_and_the_kubeconfig_are_still_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise nothing would remove them before the next engine runs."""
    removed: list[str] = []
    monkeypatch.setattr(network, "remove", lambda: removed.append("rule"))
    cluster.kubeconfig().parent.mkdir(parents=True)
    cluster.kubeconfig().touch()
    assert main(["down"]) == 0
    assert removed == ["rule"]
    assert not cluster.kubeconfig().exists()
    assert "no cluster runs here" in capsys.readouterr().out
