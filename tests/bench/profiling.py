"""Stacks of a contender's processes, for the flame graphs of the report page.

async-profiler samples the JVM, with its native code, compiler and garbage collector; py-spy samples the
Python processes. Both cost some time, so a run that is profiled has no figures.
"""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

import psutil

from infra.toolchain import maven, pip
from infra.toolchain.maven import JarError
from infra.workspace import CHECKOUT, scratch_folder, work_folder
from tests.bench import flame_graph
from tests.bench.alongside import alongside
from tests.bench.flame_graph import Stacks

WARM_S: Final = 20.0
"""From the start of a contender until its JVM has compiled what it runs."""
_FOR_S: Final = 15
_JVM_EVERY_MS: Final = 5
_PYTHON_HZ: Final = 100
_COMMAND: Final = "process "
_WORKERS: Final = "worker_daemon"
_ADDRESS: Final = re.compile(r"[.+/]0x[0-9a-f]+|\$\d+")
_PINS: Final = CHECKOUT / "requirements" / "profile.txt"


@dataclass(frozen=True)
class Profilers:
    """The installed profilers.

    Args:
        agent: of async-profiler.
        py_spy: the command.
        into: folder for the stacks of the runs.
    """

    agent: Path
    py_spy: Path
    into: Path


def install(into: Path) -> Profilers:
    """Install both profilers unless they are there, 4 MB.

    Args:
        into: folder for the stacks of the runs; it is created.

    Raises:
        JarError: a package registry did not give them, or there is none for this machine.
    """
    folder = maven.fetch("profiler")
    identity = hashlib.sha256(_PINS.read_bytes()).hexdigest()[:12]
    target = work_folder() / f"py-spy-{identity}"
    if not target.is_dir():
        with scratch_folder("py-spy") as scratch:
            command = pip.command(_PINS, scratch / "made")
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise JarError(f"pip could not install py-spy:\n{done.stderr}")
            (scratch / "made").rename(target)
    into.mkdir(parents=True, exist_ok=True)
    return Profilers(_agent(folder), target / "bin" / "py-spy", into)


def _agent(folder: Path) -> Path:
    """Return the agent of this machine, unpacked from its jar."""
    systems = {("Linux", "x86_64"): "linux-x64", ("Linux", "aarch64"): "linux-arm64"}
    name = systems.get((platform.system(), platform.machine()))
    if name is None:
        raise JarError("runs are profiled on Linux only (x86_64 or aarch64)")
    with zipfile.ZipFile(next(folder.glob("async-profiler-*.jar"))) as jar:
        return Path(jar.extract(f"{name}/libasyncProfiler.so", folder))


@contextmanager
def profiling(profilers: Profilers | None, name: str, root: int, folder: Path) -> Iterator[None]:
    """Profile a process and its children for 15 s, 20 s after the block begins, and write the stacks.

    Args:
        profilers: the installed ones; None: the run is not profiled.
        name: of the file, without its suffix.
        root: id of the process.
        folder: of the run, for the files of the profilers.
    """
    if profilers is None:
        yield
        return
    found: Stacks = {}

    def profile(ended: Event) -> None:
        nonlocal found
        if not ended.wait(WARM_S):
            found = _profile(profilers, root, folder, ended)

    with alongside(profile):
        yield
    file = profilers.into / f"{name}.stacks"
    if found:
        file.write_text(flame_graph.to_text(flame_graph.pruned(found)), encoding="utf-8")
        print(f"    its stacks are in {file}", flush=True)
    else:
        print(f"    NO STACKS: it did not run for {WARM_S + _FOR_S:.0f} s; give it more --records")


def _profile(profilers: Profilers, root: int, folder: Path, ended: Event) -> Stacks:
    family = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
    jvms = [one.pid for one in family if one.name() == "java"]
    python = folder / "python.stacks"
    command = [profilers.py_spy, "record", "--pid", root, "--subprocesses", "--nonblocking"]
    command += ["--format", "raw", "--rate", _PYTHON_HZ, "--duration", _FOR_S, "--output", python]
    for jvm in jvms:
        _agent_of(jvm, profilers, f"start,event=itimer,interval={_JVM_EVERY_MS}ms")
    if root not in jvms:
        subprocess.run([*map(str, command)], capture_output=True, check=False)
    else:
        ended.wait(_FOR_S)
    stacks: Counter[tuple[str, ...]] = Counter()
    for jvm in jvms:
        file = folder / f"jvm-{jvm}.stacks"
        _agent_of(jvm, profilers, f"stop,file={file},collapsed,simple")
        if file.exists():
            stacks += jvm_stacks(file.read_text().splitlines())
    if python.exists():
        stacks += python_stacks(python.read_text().splitlines())
    return stacks


def _agent_of(jvm: int, profilers: Profilers, options: str) -> None:
    command = ["jcmd", str(jvm), "JVMTI.agent_load", str(profilers.agent), f'"{options}"']
    subprocess.run(command, capture_output=True, check=False)


def jvm_stacks(lines: Iterable[str]) -> Counter[tuple[str, ...]]:
    """Return the stacks of a file of async-profiler, without the addresses of lambdas."""
    return _parsed(
        lines, _JVM_EVERY_MS, lambda frames: ("JVM", *(_ADDRESS.sub("", f) for f in frames))
    )


def python_stacks(lines: Iterable[str]) -> Counter[tuple[str, ...]]:
    """Return the stacks of a file of py-spy: those of Spark's workers, and those of the driver.

    With children it begins each stack with the command lines of the processes.
    """

    def named(frames: Sequence[str]) -> tuple[str, ...]:
        commands = [frame for frame in frames if frame.startswith(_COMMAND)]
        workers = any(_WORKERS in command for command in commands)
        rest = (frame for frame in frames if not frame.startswith(_COMMAND))
        return ("Python workers" if workers else "Python of the driver", *rest)

    return _parsed(lines, 1000 // _PYTHON_HZ, named)


def _parsed(
    lines: Iterable[str], weight: int, named: Callable[[Sequence[str]], tuple[str, ...]]
) -> Counter[tuple[str, ...]]:
    """Return the stacks of a collapsed file, `frame;frame;frame count`, outermost frame first."""
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        stacks[named(stack.split(";"))] += int(count) * weight
    return stacks
