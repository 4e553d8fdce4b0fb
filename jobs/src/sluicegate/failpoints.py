"""Failpoints: named places where a test or the demo makes a process die, hang or fail.

The environment variable SLUICEGATE_FAILPOINTS arms them with a list, separated by ';', of

    point[:sink][@epoch]=action[~once-file]

such as `after-decide@3=kill-group` or `after-apply:ip_count_sink@5=kill-group~/tmp/done`. With a
once-file only the first process that creates the file performs the action. Executors read the same
variable. An unarmed failpoint costs one dictionary lookup.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "SLUICEGATE_FAILPOINTS"

POINTS: Mapping[str, str] = {
    "before-stage": "driver: offsets are logged, nothing is staged",
    "stage-part": "executor: a task has staged some of its rows",
    "after-stage": "driver: all rows are staged, the state is complete",
    "before-decide": "driver: the record is ready but not created",
    "after-decide": "driver: the record is created, nothing is applied",
    "before-apply": "driver: before a sink's apply",
    "apply-begun": "applier: a sink's transaction is open and empty",
    "apply-written": "applier: rows are written, but may wait in the client; the marker is not",
    "apply-flushed": "applier: the sink has acknowledged every row but not the marker",
    "before-commit": "applier: rows and marker are written but not committed",
    "after-commit": "applier: the sink has committed, the driver does not know yet",
    "after-apply": "driver: one sink has the epoch, the next does not",
    "before-done": "driver: every sink has the epoch; without overlap Spark has not committed it",
    "pruning-log": "pruning: an object of an old epoch is deleted, others of it are not",
    "before-sweep": "pruning: old records are deleted, their staged chunks are not",
    "savepoint-copying": "savepoint: files are being copied",
    "before-seal": "savepoint: every decided epoch is applied, the seal is not created",
    "after-seal": "savepoint: the lineage is sealed, the savepoint has no manifest yet",
    "before-manifest": "savepoint: every file is copied, the manifest does not exist",
    "restore-copying": "restore: files are being copied, the checkpoint has no lineage yet",
    "before-takeover": "takeover: the parent is sealed, a part of a sink still has its marker",
    "after-takeover": "takeover: a part of a sink has the successor's marker, the next has not",
    "before-receipt": "receiver: lines are received but not logged; the epoch is the segment number",
    "after-receipt": "receiver: a segment of lines is logged; the epoch is the segment number",
    "replay-begun": "replay: a transaction is open and empty; the epoch is its number",
    "replay-written": "replay: records and their receipts are written but not committed",
    "replay-committed": "replay: a transaction is committed, the next has not begun",
}
"""All failpoints: the process that each one stops, and the state of the epoch then."""

_hooks: dict[str, Callable[[], None]] = {}


class FailpointHit(Exception):
    """Raised by the action 'raise'."""


@dataclass(frozen=True)
class Failpoint:
    """One armed failpoint."""

    point: str
    sink: str
    epoch: int | None
    action: str
    once: Path | None

    def fire(self) -> None:
        """Perform the action, at most once if there is a once-file."""
        if self.once is not None:
            try:
                self.once.touch(exist_ok=False)
            except FileExistsError:
                return
        act = _ACTIONS.get(self.action) or _hooks.get(self.action)
        if act is None:
            raise ValueError(f"{VARIABLE}: unknown action")
        act()


def parse(text: str) -> dict[str, list[Failpoint]]:
    """Return the failpoints of a list, by point.

    Raises:
        ValueError: a point is unknown, or the syntax is wrong.
    """
    armed: dict[str, list[Failpoint]] = {}
    for item in filter(None, (piece.strip() for piece in text.split(";"))):
        where, equals, action = item.partition("=")
        where, _, epoch = where.partition("@")
        point, _, sink = where.partition(":")
        action, _, once = action.partition("~")
        if point not in POINTS or not equals:
            raise ValueError(f"{VARIABLE}: {item!r} names no failpoint; known: {', '.join(POINTS)}")
        found = Failpoint(
            point, sink, int(epoch) if epoch else None, action, Path(once) if once else None
        )
        armed.setdefault(point, []).append(found)
    return armed


_armed = parse(os.environ.get(VARIABLE, ""))


def arm(text: str) -> None:
    """Replace the armed failpoints of this process."""
    _armed.clear()
    _armed.update(parse(text))


def hook(action: str, do: Callable[[], None]) -> None:
    """Register an action by name: a test's own, or 'kill-jvm' of the Spark runtime."""
    _hooks[action] = do


def reach(point: str, *, epoch: int, sink: str = "") -> None:
    """Pass a failpoint; it fires only if it is armed for this epoch and sink."""
    for failpoint in _armed.get(point, ()):
        if failpoint.epoch in (None, epoch) and failpoint.sink in ("", sink):
            failpoint.fire()


def _raise() -> None:
    raise FailpointHit


def _kill_executor() -> None:
    """Kill the executor JVM: the parent of the daemon that forked this Python worker."""
    daemon = os.getppid()
    stat = Path(f"/proc/{daemon}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    time.sleep(5)


_ACTIONS: dict[str, Callable[[], None]] = {
    "kill-group": lambda: os.killpg(os.getpgrp(), signal.SIGKILL),
    "kill-self": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "kill-executor": _kill_executor,
    "stop-group": lambda: os.killpg(os.getpgrp(), signal.SIGSTOP),
    "raise": _raise,
    "hang": lambda: time.sleep(3600),
}
