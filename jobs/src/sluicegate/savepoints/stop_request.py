"""Requests to stop the driver of a running job, as create-once objects in its checkpoint.

| object | meaning |
|---|---|
| `requests/stop-<lineage>-<id>` | the request: its expiry, and where to take a savepoint |
| `requests/stop-<lineage>-<id>.taken` | who owns it: a driver, or the requester that withdrew it |
| `requests/stop-<lineage>-<id>.done` | the answer |

The first to create `.taken` owns the request, so a request that was withdrawn or has expired never
stops a later driver. It works the same on a local disk and on S3. The clocks of requester and driver
may differ by less than the request is valid.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from sluicegate.errors import StoreUnavailable
from sluicegate.storage.object_store import ObjectStore

log = logging.getLogger("sluicegate.stop")

FOLDER = "requests/"
_POLL_S = 0.5
_WITHDRAWN = b"withdrawn"
_EXPIRED_S = 3600.0
"""A starting driver deletes requests that expired this long ago, in seconds."""


@dataclass(frozen=True)
class StopRequest:
    """A request that the driver of a lineage stops at the end of an epoch.

    Args:
        id: a random id.
        lineage: the lineage whose driver is to stop.
        until_ms: expiry in ms since 1970; no driver accepts the request later.
        savepoint: address of a folder for a savepoint that seals the lineage; empty: none.
    """

    id: str
    lineage: str
    until_ms: int
    savepoint: str = ""

    @property
    def name(self) -> str:
        """Name of the object."""
        return f"{FOLDER}stop-{self.lineage}-{self.id}"


@dataclass(frozen=True)
class Answer:
    """The outcome of a request, with one sentence for people."""

    stopped: bool
    """The driver stopped normally, and its supervisor does not restart it."""
    message: str
    savepoint: str = ""
    """Address of the savepoint, empty if none was taken."""


_DIED = Answer(
    stopped=False,
    message="the driver that accepted the request died; another driver has been started",
)


class StopRequestInbox:
    """Finds the requests to the driver of a lineage; polls the store at most once in `every_s`."""

    def __init__(self, checkpoint: ObjectStore, lineage: str, every_s: float) -> None:
        self._checkpoint, self._lineage, self._every_s = checkpoint, lineage, every_s
        self._id = uuid.uuid4().hex
        self._polled = -every_s
        self._accepted: StopRequest | None = None

    def clean_up(self) -> None:
        """Answer for drivers that died, and delete expired requests; at a start, best effort."""
        try:
            oldest_ms = (time.time() - _EXPIRED_S) * 1000
            for request in list(self._requests()):
                if request.until_ms < oldest_ms:
                    for tail in (".done", "", ".taken"):
                        self._checkpoint.delete(request.name + tail)
                elif self._checkpoint.read(f"{request.name}.taken") not in (None, _WITHDRAWN):
                    self._put_answer(request, _DIED)
        except StoreUnavailable as error:
            log.warning("cannot delete old stop requests; the next start retries: %s", error)

    def poll(self, *, now: bool = False) -> StopRequest | None:
        """Return the request that this driver has accepted; looks for one if a poll is due or `now`."""
        if self._accepted is None and (now or time.monotonic() - self._polled >= self._every_s):
            self._polled = time.monotonic()
            try:
                self._accepted = next((r for r in self._requests() if self._accept(r)), None)
            except StoreUnavailable as error:
                log.warning("cannot look for stop requests; retrying: %s", error)
        return self._accepted

    def _requests(self) -> Iterator[StopRequest]:
        prefix = f"{FOLDER}stop-{self._lineage}-"
        names = {n for n in self._checkpoint.names(FOLDER) if n.startswith(prefix)}
        for name in sorted(n for n in names if "." not in n):
            stored = self._checkpoint.read(name)
            if stored is not None:
                yield StopRequest(**json.loads(stored))

    def _accept(self, request: StopRequest) -> bool:
        if request.until_ms < time.time() * 1000:
            return False
        self._checkpoint.create(f"{request.name}.taken", self._id.encode())
        return self._checkpoint.read(f"{request.name}.taken") == self._id.encode()

    def answer(self, answer: Answer) -> None:
        """Answer the accepted request; does nothing if there is none."""
        request, self._accepted = self._accepted, None
        if request is not None:
            self._put_answer(request, answer)

    def _put_answer(self, request: StopRequest, answer: Answer) -> None:
        self._checkpoint.create(f"{request.name}.done", json.dumps(asdict(answer)).encode())


def request_stop(
    checkpoint: ObjectStore, lineage: str, *, savepoint: str = "", valid_s: float
) -> StopRequest:
    """Create a `StopRequest` that a driver may accept for `valid_s` seconds."""
    until_ms = int((time.time() + valid_s) * 1000)
    request = StopRequest(uuid.uuid4().hex, lineage, until_ms, savepoint)
    checkpoint.create(request.name, json.dumps(asdict(request)).encode())
    return request


def await_answer(
    checkpoint: ObjectStore, request: StopRequest, *, timeout_s: float
) -> Answer | None:
    """Return the answer to a request; withdraw it and return None if no driver accepts it in time.

    Raises:
        TimeoutError: a driver accepted the request and did not answer within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        stored = checkpoint.read(f"{request.name}.done")
        if stored is not None:
            for tail in ("", ".taken", ".done"):
                checkpoint.delete(request.name + tail)
            return Answer(**json.loads(stored))
        taken = checkpoint.read(f"{request.name}.taken")
        # it was withdrawn before if the store confirmed the creation too late
        if taken == _WITHDRAWN:
            return None
        if time.time() * 1000 < request.until_ms or taken is not None:
            time.sleep(_POLL_S)
        elif checkpoint.create(f"{request.name}.taken", _WITHDRAWN):
            return None
    # only a driver can have it, unless the clock was set back: then it must not reach the next one
    if checkpoint.create(f"{request.name}.taken", _WITHDRAWN):
        return None
    raise TimeoutError
