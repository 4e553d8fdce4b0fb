"""Root file systems: what of Debian's is kept, and which distributions an image's Python needs."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest

from infra.images import debian, wheels
from infra.images.debian import BASE_VARIABLE, RootError, cleaned, installed
from infra.images.keystore import timeless
from infra.images.layers import text
from infra.images.parts import REQUIREMENTS

ROOT = {
    "etc/passwd": text("root:x:0:0:root:/root:/bin/sh\n"),
    "etc/group": text("root:x:0:\n"),
}


@pytest.mark.parametrize(
    "path",
    [
        "dev/null",
        "etc/apt/sources.list",
        "etc/hostname",
        "etc/machine-id",
        "etc/passwd-",
        "etc/shadow",
        "tmp/left",
        "usr/lib/python3.11/__pycache__/os.cpython-311.pyc",
        "usr/share/doc/tool/README",
        "usr/share/man/man1/tool.1.gz",
        "var/cache/apt/pkgcache.bin",
        "var/lib/apt/lists/archive_Packages",
        "var/lib/dpkg/status-old",
        "var/log/dpkg.log",
    ],
)
def test_what_is_of_the_machine_or_the_moment_is_dropped(path: str) -> None:
    assert path not in cleaned(ROOT | {path: text("x")})


@pytest.mark.parametrize(
    "path",
    [
        "etc/ssl/certs/ca-certificates.crt",
        "usr/lib/python3.11/os.py",
        "usr/share/doc/tool/copyright",
        "var/lib/dpkg/status",
    ],
)
def test_what_a_program_or_a_licence_needs_is_kept(path: str) -> None:
    assert path in cleaned(ROOT | {path: text("x")})


def test_the_account_has_a_name() -> None:
    content = cleaned(ROOT)["etc/passwd"].content
    assert content is not None
    assert b"\nsluicegate:x:10001:10001:" in content.read()


def test_only_packages_that_are_installed_are_listed() -> None:
    book = (
        "Package: tool\nStatus: install ok installed\nVersion: 1:2-3\nDescription: a\n b: c\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
    )
    assert installed({"var/lib/dpkg/status": text(book)}) == [("tool", "1:2-3")]


def test_javas_certificates_do_not_tell_when_they_were_put_in() -> None:
    one, two = _store(1, ("b", b"2"), ("a", b"1")), _store(2, ("a", b"1"), ("b", b"2"))
    assert one != two
    assert timeless(one) == timeless(two)
    assert timeless(one) != timeless(_store(1, ("a", b"1"), ("b", b"other")))


def test_what_is_no_store_of_java_is_left_as_it_is() -> None:
    assert timeless(b"PKCS12") == b"PKCS12"


def _store(time: int, *entries: tuple[str, bytes]) -> bytes:
    data = bytes.fromhex("feedfeed00000002") + struct.pack(">I", len(entries))
    for alias, certificate in entries:
        data += struct.pack(">IH", 2, len(alias)) + alias.encode() + struct.pack(">q", time)
        data += struct.pack(">H", 5) + b"X.509" + struct.pack(">I", len(certificate)) + certificate
    secret = "changeit".encode("utf-16-be") + b"Mighty Aphrodite"
    return data + hashlib.sha1(secret + data, usedforsecurity=False).digest()


def test_a_machine_without_mmdebstrap_and_docker_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(BASE_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RootError, match="Install one of them"):
        debian.chosen_way()


def test_a_docker_client_without_an_engine_is_no_way_so_mmdebstrap_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on a new Debian; with an engine, its stock image is the way."""
    for name, value in (
        ("where", lambda _: None),
        ("answers", lambda _: None),
        ("need", lambda commands: (tmp_path / "asked").write_text(" ".join(commands))),
    ):
        monkeypatch.setattr(debian, name, value)
    monkeypatch.delenv(BASE_VARIABLE, raising=False)
    assert debian.chosen_way() == "mmdebstrap"
    assert (tmp_path / "asked").read_text() == "mmdebstrap"
    monkeypatch.setattr(debian, "answers", lambda _: "27.0")
    assert debian.chosen_way() == "stock"


def test_requirements_are_those_of_the_images_python_and_system() -> None:
    names = [name for name, _ in wheels._requirements(REQUIREMENTS / "runtime.txt")]
    assert names.count("numpy") == 1
    assert "colorama" not in names
    numpy = next(b for n, b in wheels._requirements(REQUIREMENTS / "runtime.txt") if n == "numpy")
    assert numpy.startswith("numpy==2.4.6 \\\n    --hash=sha256:")
