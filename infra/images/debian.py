"""Root file systems of Debian packages: what every image stands on.

Made by mmdebstrap where it is, or can be installed, so that no image registry is needed; else in a container of
the stock image by its own apt. Either way the result is a tar that is read and cleaned here, so that
nothing of the machine that built it, nor of the time, is in it. Not here: what is laid on top
(`catalogue`). Called by `catalogue`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from infra.host import HostError, answers, need, where
from infra.images.keystore import timeless
from infra.images.layers import EPOCH, Content, Entry, Files, folder, read, text
from infra.work import cache_folder

BASE_VARIABLE: Final = "SLUICEGATE_BASE"
"""mmdebstrap, stock, or the name of an image of Debian to use in stock's place."""

USER: Final = 10001
ACCOUNT: Final = "sluicegate"

_STOCK: Final = {"bookworm": "debian:bookworm-slim", "sid": "debian:sid-slim"}

_AGE: Final = ("Acquire::Check-Valid-Until", "Acquire::Check-Date")
"""Whether apt takes a list of packages that is past its date. A mirror that stands still is used if
this machine's own apt was told that it may be."""

_DROPPED: Final = re.compile(
    r"""(?x)^(
        (dev|proc|sys|run|tmp|var/tmp|var/log|var/cache|var/lib/apt|etc/apt|media|mnt)/.*
        | etc/(machine-id|hostname|hosts|resolv\.conf|mtab|g?shadow|(passwd|group|g?shadow|subuid|subgid)-)
        | etc/(subuid|subgid) | etc/dpkg/dpkg\.cfg\.d/99mmdebstrap | \.dockerenv | \.dockerinit
        | usr/share/(man|info|locale|lintian|bug|doc-base)/.*
        | usr/share/doc/(?!.*/copyright$).*/[^/]+
        | var/lib/dpkg/(.*-old|lock.*|triggers/Lock)
        | var/lib/systemd/.*
        | usr/bin/(myisam.*|perror|mysqlslap|mysql_migrate_keyring|innochecksum|ibd2sdi)
        | usr/lib/jvm/.*/classes_nocoops\.jsa
        | (.*/)?__pycache__(/.*)?
    )$"""
)
"""Devices and mounts, caches, logs, names of the machine, documents other than licences, tools for
data folders of MyISAM, an archive of classes for heaps beyond 32 GB, and byte code, which is made
again (`bytecode`)."""


_KEYSTORE: Final = "etc/ssl/certs/java/cacerts"


class RootError(Exception):
    """A root file system could not be made, so no image stands on it."""


@dataclass(frozen=True)
class Root:
    """A root file system.

    Args:
        name: for people.
        suite: of Debian.
        packages: beside the essential ones.
    """

    name: str
    suite: Literal["bookworm", "sid"]
    packages: tuple[str, ...]

    def tar(self) -> Path:
        """Make the root unless it is there; return its tar.

        Raises:
            RootError: neither way can be gone, or Debian's packages cannot be had.
        """
        way, target = chosen_way(), self._target()
        if target.is_file():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{target.stem}-{os.getpid()}.tar")
        print(f"  Debian {self.suite} with {', '.join(self.packages)}, by {way} ...", flush=True)
        try:
            if way == "mmdebstrap":
                _run(self._mmdebstrap(scratch))
            else:
                _from_stock(_STOCK[self.suite] if way == "stock" else way, self.packages, scratch)
            scratch.rename(target)
        finally:
            scratch.unlink(missing_ok=True)
        return target

    def forget(self) -> None:
        """Have it made anew when it is asked for, of the packages that Debian has then."""
        self._target().unlink(missing_ok=True)

    def _target(self) -> Path:
        parts = (chosen_way(), architecture(), self.suite, *self.packages)
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
        return cache_folder() / "images" / "roots" / f"{self.name}-{key}.tar"

    def files(self) -> Files:
        """Return what is in it, cleaned, with our account."""
        return cleaned(read(self.tar()))

    def _mmdebstrap(self, target: Path) -> list[str]:
        return [
            "mmdebstrap",
            "--quiet",
            "--variant=essential",
            f"--architectures={architecture()}",
            "--aptopt=APT::Install-Recommends=false",
            *(f"--aptopt={said}" for said in _told_apt()),
            # a root that was cut off is thrown away: nothing need be on the disk before the tar is
            "--dpkgopt=force-unsafe-io",
            # /bin is a link from the start: else a package that makes it one comes, with Perl
            "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
            f"--include={','.join(self.packages)}",
            self.suite,
            str(target),
        ]


def _told_apt() -> list[str]:
    """Return this machine's settings of apt about the age of lists, as apt writes them."""
    asked = ["apt-config", "dump", *_AGE]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return [line.rstrip(";") for line in said.splitlines() if line.startswith(_AGE)]


def architecture() -> str:
    """Return Debian's name, which is also Go's and the images', of this machine's processor."""
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def chosen_way() -> str:
    """Return how roots are made here: 'mmdebstrap', 'stock', or the name of an image.

    Without a word from SLUICEGATE_BASE nothing is asked of an image registry where mmdebstrap is.
    Where neither it nor a Docker engine is, it is installed.

    Raises:
        RootError: it cannot be.
    """
    named = os.environ.get(BASE_VARIABLE, "")
    if named:
        return named
    if not where("mmdebstrap"):
        if answers(["docker", "version", "--format", "{{.Server.Version}}"]):
            return "stock"
        try:
            need({"mmdebstrap": "mmdebstrap"})
        except HostError as error:
            raise RootError(
                f"No image can be built: no Docker engine answers, and there is no mmdebstrap.\n{error}"
                "\nInstall one of them, then try again."
            ) from error
    return "mmdebstrap"


def cleaned(root: Files) -> Files:
    """Return a root without what is of the machine or the moment, and with our account."""
    kept = {path: entry for path, entry in root.items() if not _DROPPED.match(path)}
    kept["etc/passwd"] = _with_line(
        kept["etc/passwd"],
        f"{ACCOUNT}:x:{USER}:{USER}:Sluicegate:/tmp:/usr/sbin/nologin",
    )
    kept["etc/group"] = _with_line(kept["etc/group"], f"{ACCOUNT}:x:{USER}:")
    store = kept.get(_KEYSTORE)
    if store and store.content:
        kept[_KEYSTORE] = Entry(Content(timeless(store.content.read())))
    kept["etc/apt"] = folder()
    kept["tmp"] = kept["var/tmp"] = folder(0o1777)
    return kept


def _with_line(entry: Entry, line: str) -> Entry:
    before = entry.content.read().decode() if entry.content else ""
    return text(f"{before.rstrip()}\n{line}\n")


def _from_stock(image: str, packages: Sequence[str], target: Path) -> None:
    """Install packages in a container of an image, and export what it is then."""
    name = f"sluicegate-root-{uuid.uuid4().hex[:8]}"
    install = (
        "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes"
        f" --no-install-recommends {' '.join(packages)}"
    )
    try:
        _run(["docker", "run", "--name", name, image, "sh", "-c", install])
        _run(["docker", "export", "--output", str(target), name])
    finally:
        subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)  # noqa: S607


def _run(argv: Sequence[str]) -> None:
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}
    try:
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    except OSError as error:
        raise RootError(f"{argv[0]} cannot be run: {error}. Nothing was built.") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RootError(
            f"{argv[0]} could not make a root file system, so nothing was built on it. Are Debian's"
            f" packages within reach? Its last words:\n{tail}"
        )


def installed(root: Files) -> list[tuple[str, str]]:
    """Return name and version of each Debian package in a root, from dpkg's own book."""
    entry = root.get("var/lib/dpkg/status")
    content = entry.content if entry else None
    book = (content or Content()).read().decode()
    found = []
    for paragraph in book.split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            found.append((fields["Package"], fields["Version"]))
    return sorted(found)
