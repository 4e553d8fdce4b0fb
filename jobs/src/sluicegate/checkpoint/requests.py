"""Asking the driver of a running job to stop, through create-once objects in its checkpoint.

    requests/stop-<lineage>-<id>          the request: until when it holds, whether a savepoint is wanted
    requests/stop-<lineage>-<id>.taken    who has it: a driver, or the asker who has withdrawn it
    requests/stop-<lineage>-<id>.done     how it ended

Whoever creates `.taken` first has the request, so one that was withdrawn or has run out never stops
a later start. Works on a disk and on S3 alike; clocks of asker and driver may differ by less than
the request holds. Not here: stopping. Called by the Spark runtime (`StopDesk`) and the CLI
(`ask`, `await_answer`).
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from sluicegate.protocol.errors import StoreUnavailable
from sluicegate.storage.objects import Objects

log = logging.getLogger("sluicegate.stop")

FOLDER = "requests/"
_POLL_S = 0.5
_WITHDRAWN = b"withdrawn"
_FORGOTTEN_S = 3600.0
"""Requests that ran out so long ago are removed at a driver's start."""


@dataclass(frozen=True)
class StopRequest:
    """A wish that the job's driver ends at the end of an epoch.

    Args:
        id: random.
        lineage: whose driver is meant.
        until_ms: ms since 1970; a driver does not take it up later.
        savepoint: the folder for a savepoint that seals the lineage; empty for none.
    """

    id: str
    lineage: str
    until_ms: int
    savepoint: str = ""

    @property
    def name(self) -> str:
        """The object's name."""
        return f"{FOLDER}stop-{self.lineage}-{self.id}"


@dataclass(frozen=True)
class Answer:
    """How a request ended.

    Args:
        stopped: the driver ended well and will not be started again by its supervisor.
        said: one sentence for people.
        savepoint: the savepoint's address, empty if none was taken.
    """

    stopped: bool
    said: str
    savepoint: str = ""


_DIED = Answer(
    stopped=False, said="the driver that had taken the request up died; another has been started"
)


class StopDesk:
    """Where a driver looks for requests.

    Args:
        objects: the checkpoint.
        lineage: the driver's.
        every_s: how often it may look.
    """

    def __init__(self, objects: Objects, lineage: str, every_s: float) -> None:
        self._objects, self._lineage, self._every_s = objects, lineage, every_s
        self._id = uuid.uuid4().hex
        self._looked = -every_s
        self._taken: StopRequest | None = None

    def tidy(self) -> None:
        """Answer for drivers that have died, and remove what nobody waits for any more.

        Called at a start, best effort.
        """
        try:
            old = (time.time() - _FORGOTTEN_S) * 1000
            for request in list(self._requests()):
                if request.until_ms < old:
                    for tail in (".done", "", ".taken"):
                        self._objects.delete(request.name + tail)
                elif self._objects.read(f"{request.name}.taken") not in (None, _WITHDRAWN):
                    self._put_answer(request, _DIED)
        except StoreUnavailable as error:
            log.warning("old requests were not removed, the next start tries again: %s", error)

    def asked(self, *, now: bool = False) -> StopRequest | None:
        """Return a request that this driver has taken up, looking for one if it is time.

        Args:
            now: look, however short ago the last look was.
        """
        if self._taken is None and (now or time.monotonic() - self._looked >= self._every_s):
            self._looked = time.monotonic()
            try:
                self._taken = next((r for r in self._requests() if self._take(r)), None)
            except StoreUnavailable as error:
                log.warning("whether a stop is asked for is not known, looking again: %s", error)
        return self._taken

    def _requests(self) -> Iterator[StopRequest]:
        prefix = f"{FOLDER}stop-{self._lineage}-"
        names = {n for n in self._objects.names(FOLDER) if n.startswith(prefix)}
        for name in sorted(n for n in names if "." not in n):
            stored = self._objects.read(name)
            if stored is not None:
                yield StopRequest(**json.loads(stored))

    def _take(self, request: StopRequest) -> bool:
        if request.until_ms < time.time() * 1000:
            return False
        self._objects.create(f"{request.name}.taken", self._id.encode())
        return self._objects.read(f"{request.name}.taken") == self._id.encode()

    def answer(self, answer: Answer) -> None:
        """Answer the request that was taken up; nothing if there is none."""
        request, self._taken = self._taken, None
        if request is not None:
            self._put_answer(request, answer)

    def _put_answer(self, request: StopRequest, answer: Answer) -> None:
        self._objects.create(f"{request.name}.done", json.dumps(asdict(answer)).encode())


def ask(objects: Objects, lineage: str, *, savepoint: str = "", hold_s: float) -> StopRequest:
    """Ask the driver of a lineage to stop.

    Args:
        objects: the checkpoint.
        lineage: whose driver is meant.
        savepoint: the folder for a savepoint; empty for none.
        hold_s: how long a driver may take the request up.
    """
    until_ms = int((time.time() + hold_s) * 1000)
    request = StopRequest(uuid.uuid4().hex[:12], lineage, until_ms, savepoint)
    objects.create(request.name, json.dumps(asdict(request)).encode())
    return request


def await_answer(objects: Objects, request: StopRequest, *, patience_s: float) -> Answer | None:
    """Wait for the answer; withdraw the request if nobody takes it up while it holds.

    Args:
        objects: the checkpoint.
        request: of `ask`.
        patience_s: how long a driver that has taken it up may work on it.

    Returns:
        None: nobody took it up, and nobody will.

    Raises:
        TimeoutError: a driver has taken it up and did not answer.
    """
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        stored = objects.read(f"{request.name}.done")
        if stored is not None:
            for tail in ("", ".taken", ".done"):
                objects.delete(request.name + tail)
            return Answer(**json.loads(stored))
        if time.time() * 1000 < request.until_ms or objects.read(f"{request.name}.taken"):
            time.sleep(_POLL_S)
        elif objects.create(f"{request.name}.taken", _WITHDRAWN):
            return None
    raise TimeoutError
