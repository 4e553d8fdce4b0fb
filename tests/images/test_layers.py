"""Layers and archives: the same bytes for the same files, and nothing of the machine that wrote them."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

from infra.images import archive, layers
from infra.images.archive import Settings, Tar
from infra.images.bytecode import compiled
from infra.images.layers import Content, Entry, folder, link, text


def _layer(path: Path) -> layers.Files:
    return {
        "usr/bin/tool": Entry(Content.of(path), mode=0o4755),
        "usr/lib/tool.so": link("tool.so.1"),
        "var/lib/tool": folder(0o700, 10001),
        "etc/tool": text("a = 1\n"),
    }


def test_the_same_files_make_the_same_layer(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_bytes(b"tool")
    first = layers.write(_layer(tool), tmp_path / "first")
    os.utime(tool, (1, 1))
    again = layers.write(dict(reversed(_layer(tool).items())), tmp_path / "again")
    assert first == again
    assert (tmp_path / "first").read_bytes() == (tmp_path / "again").read_bytes()


def test_another_file_makes_another_layer(tmp_path: Path) -> None:
    one = layers.write({"a": text("1")}, tmp_path / "one")
    assert one != layers.write({"a": text("2")}, tmp_path / "two")


def test_what_is_written_is_read_back_without_set_uid(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_bytes(b"tool")
    layers.write(_layer(tool), tmp_path / "layer")
    found = layers.read(tmp_path / "layer")
    program, data = found["usr/bin/tool"], found["var/lib/tool"]
    assert program.content is not None
    assert (program.content.read(), program.mode) == (b"tool", 0o755)
    assert (data.is_folder, data.mode, data.uid, data.gid) == (True, 0o700, 10001, 10001)
    assert found["usr/lib/tool.so"].target == "tool.so.1"
    assert found["usr"].mode == 0o755


def test_owners_have_no_names_and_files_one_time(tmp_path: Path) -> None:
    layers.write({"etc/tool": text("a")}, tmp_path / "layer")
    with tarfile.open(tmp_path / "layer") as made:
        members = made.getmembers()
    assert {(m.uname, m.gname, m.mtime) for m in members} == {("", "", layers.EPOCH)}


def test_a_hard_link_becomes_a_file(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "tar", "w") as made:
        layers._add(made, "one", text("same"))
        other = tarfile.TarInfo("./two")
        other.type, other.linkname = tarfile.LNKTYPE, "one"
        made.addfile(other)
    content = layers.read(tmp_path / "tar")["two"].content
    assert content is not None
    assert content.read() == b"same"


def test_a_difference_laid_over_what_is_below_gives_what_is_above() -> None:
    below = {"a": text("1"), "b": text("2"), "c": folder(), "c/d": text("3"), "e": text("4")}
    above = {"a": text("1"), "b": text("other"), "f": link("a"), "e": text("4", 0o600)}
    layer = layers.difference(below, above)
    assert set(layer) == {"b", ".wh.c", "e", "f"}
    assert layers.laid([below, layer]) == above


def test_an_archive_names_image_layers_and_user(tmp_path: Path) -> None:
    digest = layers.write({"etc/tool": text("a")}, tmp_path / "layer")
    tar = Tar(tmp_path / "layer", digest, "a tool")
    settings = Settings(("/usr/bin/tool",), ports=(80,), labels={"b": "2", "a": "1"})
    config = archive.configuration(settings, [tar], "amd64")
    identity = archive.write(tmp_path / "archive", "sluicegate/tool:1", config, [tar])
    said, files = archive.read(tmp_path / "archive")
    assert said["rootfs"]["diff_ids"] == [digest]
    assert said["config"]["User"] == "10001:10001"
    assert said["config"]["ExposedPorts"] == {"80/tcp": {}}
    assert "etc/tool" in files
    with tarfile.open(tmp_path / "archive") as made:
        (image,) = json.load(made.extractfile("manifest.json"))  # type: ignore[arg-type]
    assert image["RepoTags"] == ["sluicegate/tool:1"]
    assert image["Config"] == f"{identity.removeprefix('sha256:')}.json"


def test_byte_code_is_the_same_each_time_and_checked_by_hash() -> None:
    sources = {f"usr/lib/m{n}.py": text(f"names = {{'a', 'b', 'c{n}'}}\n") for n in range(20)}
    made = compiled(sources)
    assert made == compiled(sources)
    content = made["usr/lib/__pycache__/m0.cpython-311.pyc"].content
    assert content is not None
    assert content.read()[4:8] == bytes([3, 0, 0, 0])  # PEP 552: by hash, checked


def test_a_file_that_is_no_python_has_no_byte_code() -> None:
    assert compiled({"a/template.py": text("def {{ name }}:\n")}) == {}
