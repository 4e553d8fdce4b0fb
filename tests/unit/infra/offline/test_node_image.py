"""The node image: what goes into it, and when it is another one."""

from pathlib import Path

import pytest

from infra.offline.kind_node import node_image, programs, rootfs, system_images
from infra.toolchain.go_build import Program
from infra.toolchain.host import HostError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLUICEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SLUICEGATE_WORK", str(tmp_path / "work"))
    return tmp_path / "cache"


def test_every_program_is_pinned_by_a_hash_and_has_a_file_of_its_own() -> None:
    assert all(program.checksum.startswith("h1:") for program in programs.PROGRAMS)
    binaries = {program.binary for program in programs.PROGRAMS}
    assert len(binaries) == len(programs.PROGRAMS)


@pytest.mark.parametrize("program", [programs.COREDNS, programs.CRICTL, programs.PAUSE])
def test_a_program_with_a_main_of_ours_is_known_by_that_main(program: Program) -> None:
    (ours,) = program.added.values()
    assert ours.is_file()
    assert "package main" in ours.read_text()
    assert program.binary.name != Program(**{**vars(program), "added": {}}).binary.name


def test_a_node_of_another_recipe_has_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = node_image.name()
    assert node_image.name() == before
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "rootfs.py").write_text("another")
    monkeypatch.setattr(node_image, "_HERE", recipe)
    assert node_image.name() != before


def test_pods_get_addresses_of_the_nodes_own_share() -> None:
    plugins = rootfs.pod_network()["plugins"]
    assert isinstance(plugins, list)
    assert [plugin["type"] for plugin in plugins] == ["ptp", "portmap"]
    assert {plugin["type"] for plugin in plugins} <= set(programs.PLUGINS)
    assert plugins[0]["ipam"]["type"] in programs.PLUGINS
    assert plugins[0]["ipam"]["ranges"] == [[{"subnet": "10.244.0.0/24"}]]


def test_containers_start_from_containerds_own_settings_with_kinds_hook_and_no_limits() -> None:
    spec = {"process": {"args": ["sh"], "rlimits": [1]}, "hooks": {"prestart": [2]}}
    assert rootfs.container_base(dict(spec)) == {
        "process": {"args": ["sh"]},
        "hooks": {
            "prestart": [2],
            "createContainer": [{"path": "/kind/bin/mount-product-files.sh"}],
        },
    }


def test_the_pause_image_is_that_of_containerds_settings(tmp_path: Path) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text('# pause\n  sandbox_image = "registry.k8s.io/pause:3.10"\n')
    assert system_images.pause_name(settings) == "registry.k8s.io/pause:3.10"
    settings.write_text("")
    with pytest.raises(HostError, match="sandbox_image"):
        system_images.pause_name(settings)


def test_an_image_that_kubeadm_wants_and_we_do_not_know_stops_the_build() -> None:
    with pytest.raises(HostError, match="kube-surprise"):
        system_images._wanted("registry.k8s.io/kube-surprise:v1")


def test_the_manifests_ask_for_the_images_that_the_node_holds(tmp_path: Path) -> None:
    manifests = tmp_path / "kind" / "manifests"
    manifests.mkdir(parents=True)
    source = Path(rootfs.__file__).parent / "manifests" / "default-storage.yaml"
    (manifests / "default-storage.yaml").write_text(source.read_text())
    node_image._fill_in_names(tmp_path)
    text = (manifests / "default-storage.yaml").read_text()
    assert text.count(system_images.HELPER) == 2
    assert text.count(system_images.PROVISIONER) == 1
    assert "@" not in text
