"""infra/kind without a cluster: its settings, its choices, and what a node lacks."""

import json
import os
from pathlib import Path

import pytest

from infra.host import HostError, need
from infra.kind import cluster, engine, loading, network
from infra.kind.__main__ import main
from infra.kind.archive import ImageName
from infra.kind.progress import Steps


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
    monkeypatch.setattr("infra.host.where", lambda name: _in(folder, name))
    monkeypatch.setattr("infra.kind.engine.where", lambda name: _in(folder, name))
    return folder


def _in(folder: Path, name: str) -> str | None:
    return str(folder / name) if (folder / name).is_file() else None


def test_the_kubeconfig_is_in_the_work_folder(folders: Path) -> None:
    assert cluster.kubeconfig() == folders / "work" / "kind" / "kubeconfig"


def test_kind_is_asked_for_one_node_and_no_port_beyond_loopback() -> None:
    settings = cluster.settings()
    assert settings["nodes"] == [{"role": "control-plane"}]
    assert "networking" not in settings
    patches = settings["kubeadmConfigPatches"]
    assert isinstance(patches, list)
    kinds = {json.loads(patch)["kind"] for patch in patches}
    assert kinds == {"ClusterConfiguration", "KubeletConfiguration"}


def test_the_stock_node_is_taken_with_an_engine_of_the_machine() -> None:
    assert cluster.choice() == "stock"


def test_our_own_node_is_taken_with_an_engine_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ours", lambda: 42)
    assert cluster.choice() == "own"


def test_what_takes_long_is_named_where_a_node_of_our_own_would_be_taken(
    no_commands: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not list(no_commands.iterdir())
    assert main(["gap"]) == 1
    assert "kube-apiserver" in capsys.readouterr().out


def test_nothing_takes_long_with_the_stock_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cluster.NODE_VARIABLE, "stock")
    assert main(["gap"]) == 0


def test_what_is_said_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ours", lambda: 42)
    monkeypatch.setenv(cluster.NODE_VARIABLE, "kindest/node:v1.36.0")
    assert cluster.choice() == "kindest/node:v1.36.0"


def test_a_node_of_our_own_is_not_started_without_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "ours_to_set", lambda: False)
    monkeypatch.setattr(network, "make", lambda: pytest.fail("a network was made"))
    with pytest.raises(HostError, match="Nothing was started"):
        cluster._close(own=True)


def test_a_rule_that_is_not_in_force_stops_the_start(
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


def test_who_is_not_root_is_told_in_one_line_what_is_missing(
    no_commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not list(no_commands.iterdir())
    monkeypatch.setattr("infra.host.root", lambda: False)
    with pytest.raises(HostError) as told:
        need({"nft": "nftables", "dockerd": "docker.io"})
    assert "dockerd, nft" in str(told.value)
    assert "apt-get install docker.io nftables" in str(told.value)
    assert "\n" not in str(told.value)


def test_without_an_engine_a_user_is_told_to_start_one(
    no_commands: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not list(no_commands.iterdir())
    monkeypatch.setattr("infra.kind.engine.root", lambda: False)
    assert main(["engine", "up"]) == 1
    assert "Start Docker" in capsys.readouterr().err


def test_an_engine_that_lacks_nothing_runs_containers_by_runc_itself() -> None:
    assert "runtimes" not in engine.settings(None)


def test_everything_of_an_engine_of_ours_is_in_one_folder(folders: Path) -> None:
    settings = engine.settings(Path("/r"))
    assert settings["data-root"] == str(folders / "cache" / "engine" / "data")
    assert settings["default-runtime"] == "fitted"


def test_a_process_id_that_was_given_again_is_not_our_engine() -> None:
    engine.folder().mkdir(parents=True)
    (engine.folder() / "dockerd.pid").write_text(str(os.getpid()))
    assert engine.ours() is None
    assert not engine.down()


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


def test_dns_denies_outside_names_and_keeps_all_else() -> None:
    first, last = cluster.denying(COREFILE).split("\n.:5353 {\n")
    assert first + "\n" == COREFILE.replace("/etc/resolv.conf", "127.0.0.1:5353")
    assert "rcode NXDOMAIN" in last


def test_settings_of_dns_that_are_not_kubeadms_are_not_guessed_at() -> None:
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
def test_a_node_lacks_what_it_has_not_by_name_and_id(image: ImageName, lacks: bool) -> None:  # noqa: FBT001
    assert loading.lacks([image], THERE) is lacks


def test_a_nodes_images_are_read_by_all_their_names() -> None:
    listed = {
        "images": [
            {"id": "sha256:one", "repoTags": ["x:1", "x:2"], "size": "3"},
            {"id": "sha256:two", "repoTags": None},
        ]
    }
    assert loading.named(listed) == {"x:1": "sha256:one", "x:2": "sha256:one"}


def test_a_file_that_is_no_archive_is_named(folders: Path) -> None:
    (folders / "a.tar").write_text("no")
    with pytest.raises(HostError, match=r"a\.tar"):
        loading._read(folders / "a.tar")


def test_steps_say_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps(2)
    steps.begin("first")
    steps.grow(1)
    steps.begin("second")
    assert capsys.readouterr().out == "1 of 2: first ...\n2 of 3: second ...\n"
