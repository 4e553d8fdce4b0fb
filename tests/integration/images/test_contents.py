"""The files of a layer, and the files that a container sees of the layers in an archive."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

from infra.images import contents
from infra.images.contents import Entry, Files, text
from tests.integration.images import archives


def _write_tar(path: Path, files: Files, *members: tarfile.TarInfo) -> Path:
    """Write a tar with files, followed by members without content."""
    with tarfile.open(path, "w") as tar:
        for name, entry in files.items():
            member = tarfile.TarInfo(name)
            member.mode, member.uid, member.gid = entry.mode, entry.uid, entry.gid
            data = entry.content.read() if entry.content else b""
            member.size = len(data)
            if entry.target:
                member.type, member.linkname = tarfile.SYMTYPE, entry.target
            elif entry.content is None:
                member.type = tarfile.DIRTYPE
            tar.addfile(member, io.BytesIO(data))
        for member in members:
            tar.addfile(member)
    return path


def _read(entry: Entry) -> bytes:
    assert entry.content is not None
    return entry.content.read()


def test_files_folders_and_links_are_read_with_mode_and_owner(tmp_path: Path) -> None:
    written = {
        "./usr/bin/tool": Entry(text("tool").content, mode=0o755),
        "./var/lib/tool": Entry(mode=0o700, uid=10001, gid=10001),
        "./usr/lib/tool.so": Entry(target="tool.so.1"),
        "./.dockerenv": text(""),
    }
    files = contents.read(_write_tar(tmp_path / "tar", written))
    assert set(files) == {"usr/bin/tool", "var/lib/tool", "usr/lib/tool.so", ".dockerenv"}
    assert (_read(files["usr/bin/tool"]), files["usr/bin/tool"].mode) == (b"tool", 0o755)
    assert files["var/lib/tool"] == Entry(mode=0o700, uid=10001, gid=10001)
    assert files["usr/lib/tool.so"].target == "tool.so.1"


def test_a_hard_link_becomes_a_file(tmp_path: Path) -> None:
    link = tarfile.TarInfo("./two")
    link.type, link.linkname = tarfile.LNKTYPE, "one"
    files = contents.read(_write_tar(tmp_path / "tar", {"one": text("same")}, link))
    assert _read(files["two"]) == b"same"


def test_a_higher_layer_replaces_and_removes_files() -> None:
    lower = {"a": text("1"), "b": text("2"), "c": Entry(), "c/d": text("3"), "e/f": text("4")}
    upper = {"b": text("other"), ".wh.c": text(""), "e/.wh.f": text(""), "e/g": text("5")}
    assert archives.merge_layers([lower, upper]) == {
        "a": text("1"),
        "b": text("other"),
        "e/g": text("5"),
    }


def test_an_opaque_folder_hides_its_content_in_lower_layers() -> None:
    lower = {"a/b": text("1"), "a/c/d": text("2"), "ab": text("3")}
    upper = {"a": Entry(), "a/.wh..wh..opq": text(""), "a/e": text("4")}
    assert archives.merge_layers([lower, upper]) == {
        "ab": text("3"),
        "a": Entry(),
        "a/e": text("4"),
    }


def test_an_archive_whose_layers_are_the_same_file_is_read(tmp_path: Path) -> None:
    layer = _write_tar(tmp_path / "layer.tar", {"etc/tool": text("a")})
    (tmp_path / "1.json").write_text(json.dumps({"config": {"User": "10001:10001"}}))
    manifest = [{"Config": "1.json", "RepoTags": ["a:1"], "Layers": ["x/layer.tar", "y/layer.tar"]}]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    link = tarfile.TarInfo("y/layer.tar")
    link.type, link.linkname = tarfile.SYMTYPE, "../x/layer.tar"
    with tarfile.open(tmp_path / "archive", "w") as archive:
        archive.add(tmp_path / "manifest.json", "manifest.json")
        archive.add(tmp_path / "1.json", "1.json")
        archive.add(layer, "x/layer.tar")
        archive.addfile(link)
    config, files = archives.read(tmp_path / "archive")
    assert config["config"]["User"] == "10001:10001"
    assert _read(files["etc/tool"]) == b"a"
