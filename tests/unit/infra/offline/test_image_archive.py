"""infra/offline/kind_node/image_archive.py: image archives that say what is in them."""

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from infra.offline.kind_node import image_archive

SETTINGS = {"Entrypoint": ["/serve"]}


def tree(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "serve").write_text("#!/bin/sh\n")
    (folder / "bin" / "serve").chmod(0o755)
    (folder / "serve").symlink_to("bin/serve")
    return folder


def layer_of(file: Path) -> tarfile.TarFile:
    with tarfile.open(file) as tar:
        (layer,) = (name for name in tar.getnames() if name.endswith("layer.tar"))
        tar.extract(layer, file.parent, filter="data")
    return tarfile.open(file.parent / layer)


def test_the_same_files_give_the_same_bytes_whenever_they_were_written(tmp_path: Path) -> None:
    older, newer = tree(tmp_path / "older"), tree(tmp_path / "newer")
    os.utime(older / "bin" / "serve", (1, 1))
    one = image_archive.write(tmp_path / "one.tar", "a/b:1", older, SETTINGS)
    two = image_archive.write(tmp_path / "two.tar", "a/b:1", newer, SETTINGS)
    assert one == two
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_an_archive_says_the_id_and_name_of_its_image(tmp_path: Path) -> None:
    made = image_archive.write(tmp_path / "a.tar", "a/b:1", tree(tmp_path / "root"), SETTINGS)
    assert image_archive.read(tmp_path / "a.tar") == [made]
    assert made.names == ("a/b:1",)


def test_another_entry_point_is_another_image(tmp_path: Path) -> None:
    root = tree(tmp_path / "root")
    one = image_archive.write(tmp_path / "a.tar", "a/b:1", root, SETTINGS)
    two = image_archive.write(tmp_path / "a.tar", "a/b:1", root, {"Entrypoint": ["/other"]})
    assert one.identity != two.identity


def test_the_configuration_names_the_layer_by_its_hash(tmp_path: Path) -> None:
    image_archive.write(tmp_path / "a.tar", "a/b:1", tree(tmp_path / "root"), SETTINGS)
    with tarfile.open(tmp_path / "a.tar") as tar:
        manifest = json.load(tar.extractfile("manifest.json") or pytest.fail("no manifest"))
        configuration = json.load(tar.extractfile(manifest[0]["Config"]) or pytest.fail("none"))
        layer = (tar.extractfile(manifest[0]["Layers"][0]) or pytest.fail("no layer")).read()
    digest = hashlib.sha256(layer).hexdigest()
    assert configuration["rootfs"]["diff_ids"] == [f"sha256:{digest}"]
    assert configuration["config"] == SETTINGS


def test_links_and_modes_are_kept_and_root_owns_all(tmp_path: Path) -> None:
    image_archive.write(tmp_path / "a.tar", "a/b:1", tree(tmp_path / "root"), SETTINGS)
    with layer_of(tmp_path / "a.tar") as layer:
        assert layer.getnames() == ["bin", "bin/serve", "serve"]
        assert layer.getmember("bin/serve").mode == 0o755
        assert layer.getmember("serve").linkname == "bin/serve"
        assert {(member.uid, member.gid, member.mtime) for member in layer} == {(0, 0, 0)}


def test_nothing_is_left_of_an_archive_that_could_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        image_archive.write(tmp_path / "a.tar", "a/b:1", tmp_path / "nowhere", SETTINGS)
    assert not list(tmp_path.iterdir())


def test_an_archive_of_docker_25_is_read_too(tmp_path: Path) -> None:
    manifest = [{"Config": "blobs/sha256/abc", "RepoTags": ["a:1"], "Layers": []}]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "manifest.json", "manifest.json")
    assert image_archive.read(tmp_path / "a.tar") == [
        image_archive.ImageName("sha256:abc", ("a:1",))
    ]


def test_a_tar_file_that_is_no_image_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tree(tmp_path / "root"), "root")
    with pytest.raises(ValueError, match="no image archive"):
        image_archive.read(tmp_path / "a.tar")


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("sluicegate/jobs:0.1.0", "docker.io/sluicegate/jobs:0.1.0"),
        ("debian:12", "docker.io/library/debian:12"),
        ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
        ("localhost:5000/a:1", "localhost:5000/a:1"),
    ],
)
def test_a_name_is_what_a_node_calls_it(name: str, whole: str) -> None:
    assert image_archive.ImageName("sha256:abc", (name,)).on_a_node() == (whole,)
