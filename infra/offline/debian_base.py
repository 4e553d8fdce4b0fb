"""Base images of Debian for machines that reach no image registry.

mmdebstrap builds a root file system from Debian's packages, and `docker import` makes an image of it
that stands in for `debian:bookworm-slim` or `debian:sid-slim`. It contains apt, and nothing of this
machine: neither its name, its DNS server nor its settings of apt.
"""

import hashlib
import os
import platform
from pathlib import Path
from typing import Final

from infra.toolchain.host import answers, apt_settings, need, run
from infra.workspace import cache_folder

_OPTIONS: Final = (
    "--quiet",
    "--variant=apt",
    # as in the stock image; licenses stay
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    # an interrupted build is thrown away, so nothing has to be on the disk before the tar is
    "--dpkgopt=force-unsafe-io",
    # /bin is a link from the start; otherwise a package that converts it is installed, with Perl
    "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
    '--customize-hook=cd "$1/etc" && rm -f hostname resolv.conf machine-id apt/apt.conf.d/99mmdebstrap',
)
_PATIENCE_S: Final = 900.0
_EPOCH: Final = "1767225600"
"""2026-01-01T00:00:00Z: no file is newer, so the same packages give the same file system."""


def architecture() -> str:
    """Return Debian's name, also Go's and that of images, for this machine's processor."""
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def imported(suite: str, *, fresh: bool = False) -> str:
    """Return the name of the base image of a release of Debian; build it unless the engine has it.

    `fresh` builds it from the packages that Debian has now.
    """
    key = hashlib.sha256("\n".join([architecture(), *_OPTIONS]).encode()).hexdigest()[:12]
    name = f"sluicegate/debian:{suite}-{key}"
    tar = cache_folder() / "images" / "roots" / f"{suite}-{key}.tar"
    if fresh:
        tar.unlink(missing_ok=True)
    elif answers(["docker", "image", "inspect", name]) is not None:
        return name
    if not tar.is_file():
        _build(suite, tar)
    run(
        ["docker", "import", tar, name],
        what=f"The Docker engine does not accept Debian {suite} as a base image",
        patience_s=_PATIENCE_S,
    )
    return name


def _build(suite: str, tar: Path) -> None:
    need({"mmdebstrap": "mmdebstrap"})
    print(f"Building a base image of Debian {suite} with mmdebstrap ...", flush=True)
    tar.parent.mkdir(parents=True, exist_ok=True)
    scratch = tar.with_name(f".{tar.stem}-{os.getpid()}.tar")
    try:
        with apt_settings() as settings:
            options = [*_OPTIONS, f"--architectures={architecture()}", f"--aptopt={settings}"]
            run(
                ["mmdebstrap", *options, suite, scratch],
                what=f"mmdebstrap could not build Debian {suite}, so no image can be based on it",
                patience_s=_PATIENCE_S,
                environment={"SOURCE_DATE_EPOCH": _EPOCH},
            )
        scratch.rename(tar)
    finally:
        scratch.unlink(missing_ok=True)
