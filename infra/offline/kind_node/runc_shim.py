"""Runs runc with only the capabilities that this machine has.

An old Docker gives a privileged container every capability that the kernel knows; where the machine
itself lacks one (a sandbox without CAP_SYS_RESOURCE, say), runc refuses the container. Specification: OCI
runtime, config.json, `process.capabilities`. It uses the standard library only: the engine runs a copy of
it, which may outlive this clone.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

RUNC: Final = "/usr/sbin/runc"

# By bit, from linux/capability.h.
# fmt: off
NAMES: Final = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
    "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
    "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)
# fmt: on


def bounding(status: str) -> int:
    """Return the bounding set, as bits, from the text of /proc/self/status."""
    line = next(line for line in status.splitlines() if line.startswith("CapBnd:"))
    return int(line.split()[1], 16)


def had(bits: int) -> set[str]:
    """Return the names of a set of capabilities, as the specification writes them."""
    return {f"CAP_{name}" for place, name in enumerate(NAMES) if bits >> place & 1}


def lacking(bits: int, last: int) -> set[str]:
    """Return what a machine lacks, of the capabilities up to the last that its kernel knows."""
    return had((1 << (last + 1)) - 1) - had(bits)


def fitted(process: dict[str, Any], have: set[str]) -> dict[str, Any]:
    """Return an OCI `process` that asks for nothing beyond what there is."""
    asked = process.get("capabilities")
    if not asked:
        return process
    fits = {kind: [name for name in names if name in have] for kind, names in asked.items()}
    return {**process, "capabilities": fits}


def files(arguments: list[str]) -> list[tuple[Path, bool]]:
    """Return the files of runc's command that hold capabilities, and whether each is a whole bundle.

    `create` and `run` name a bundle, or mean the folder they are called in; `exec` names a process.
    """
    verb = next((word for word in arguments if word in ("create", "run", "exec")), "")
    named = dict(_options(arguments))
    if verb in ("create", "run"):
        bundle = named.get("--bundle") or named.get("-b") or "."
        return [(Path(bundle) / "config.json", True)]
    process = named.get("--process") or named.get("-p")
    return [(Path(process), False)] if verb == "exec" and process else []


def _options(arguments: list[str]) -> list[tuple[str, str]]:
    """Return each option with what stands behind it, after `=` or as the next word."""
    after = [*arguments[1:], ""]
    return [
        (word.partition("=")[0], word.partition("=")[2] if "=" in word else following)
        for word, following in zip(arguments, after, strict=True)
        if word.startswith("-")
    ]


def main() -> None:
    """Fit the bundle and become runc."""
    have = had(bounding(Path("/proc/self/status").read_text(encoding="ascii")))
    for file, whole in files(sys.argv[1:]):
        spec = json.loads(file.read_text(encoding="utf-8"))
        fit = {**spec, "process": fitted(spec["process"], have)} if whole else fitted(spec, have)
        file.write_text(json.dumps(fit), encoding="utf-8")
    os.execv(RUNC, [RUNC, *sys.argv[1:]])  # noqa: S606  # to become it is the purpose


if __name__ == "__main__":
    main()
