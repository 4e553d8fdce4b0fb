"""Finds checkpoints and savepoints below addresses, by listing folders and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from sluicegate.console.model import Problem
from sluicegate.console.parsing import problem_of
from sluicegate.console.stores import Stores
from sluicegate.deployment.environment import EVENT_LOGS
from sluicegate.errors import SettingsInvalid, SluicegateError
from sluicegate.savepoints.manifest import MANIFEST, TAKING

_DEPTH = 5
"""How far below an address checkpoints are searched: a volume has namespaces, jobs and more."""
_FOLDERS = 2_000
"""How many folders below an address are listed at most."""

ListAll = Callable[[Callable[[str], set[str]], Sequence[str]], Iterable[set[str]]]
"""The `map` of a pool of threads."""


@dataclass(frozen=True)
class Found:
    """What is below the addresses: checkpoints by key, savepoints, and what could not be listed."""

    checkpoints: dict[str, str]
    savepoints: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def find(stores: Stores, list_all: ListAll) -> Found:
    """Return what is below the addresses of some stores; one that cannot be listed is a problem.

    Args:
        stores: their addresses are those of checkpoints, or of folders or prefixes with checkpoints and
            savepoints below them.
        list_all: lists several folders, at the same time.
    """
    checkpoints: dict[str, str] = {}
    savepoints: list[str] = []
    problems: list[Problem] = []
    for address in stores.addresses:
        try:
            for folder, is_savepoint in _folders(stores, address, list_all):
                if is_savepoint:
                    savepoints.append(_below(address, folder))
                else:
                    key = _key(address, folder, checkpoints)
                    checkpoints[key] = _below(address, folder)
        except SluicegateError as error:
            problems.append(problem_of(error))
    return Found(checkpoints, tuple(savepoints), tuple(problems))


def _folders(stores: Stores, address: str, list_all: ListAll) -> Iterator[tuple[str, bool]]:
    """Yield the folders with a checkpoint, and those with a savepoint, below an address.

    Raises:
        SettingsInvalid: there are more folders than are listed; raised after those that were.
    """
    store, level, listed = stores.open(address), [""], 0
    for _ in range(_DEPTH + 1):
        below: list[str] = []
        listed += len(level)
        entries = list_all(lambda folder: set(store.entries(folder)), level)
        for folder, names in zip(level, entries, strict=True):
            inside = {name.removeprefix(folder) for name in names}
            if inside & {MANIFEST, TAKING}:
                yield folder, True
            elif inside & {"lineage.json", "epochs/"}:
                yield folder, False
            else:
                folders = (name for name in names if name.endswith("/"))
                below += sorted(name for name in folders if not name.endswith(f"{EVENT_LOGS}/"))
        level = below[: max(0, _FOLDERS - listed)]
        if len(level) < len(below):
            raise SettingsInvalid(
                f"{address} has more than {_FOLDERS:,} folders, and the others were not searched",
                data="jobs in the others are missing on this page",
                do="give the console addresses further below, or one console to each of them",
            )
        if not level:
            break


def _below(address: str, folder: str) -> str:
    return f"{address.rstrip('/')}/{folder}".rstrip("/") if folder else address


def _key(address: str, folder: str, taken: dict[str, str]) -> str:
    """Return a key that is not taken: the path below the address, or the address's last part."""
    whole = address if "://" in address else str(Path(address).resolve())
    path = folder.rstrip("/") or whole.rstrip("/").rpartition("/")[2] or "checkpoint"
    # names of files may be no UTF-8, and URLs must be
    path = path.encode(errors="replace").decode()
    keys = chain([path], (f"{path}~{number}" for number in count(2)))
    return next(key for key in keys if key not in taken)
