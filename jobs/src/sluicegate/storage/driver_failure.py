"""Why the last drivers of a checkpoint failed, `failures/…`: for people.

It is information only, like the report of an epoch: no decision reads it. Written when a driver has
ended, so no epoch waits for it. A store that does not answer soon costs the record, not the restart.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sluicegate.deployment.termination import Reason
from sluicegate.errors import CheckpointOfAnotherJob, OwnedByAnother, StoreUnavailable
from sluicegate.storage.epoch_report import finite, read_parsed
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import ObjectStore, open_store

log = logging.getLogger("sluicegate.failures")

FOLDER = "failures/"
RETAINED = 20
"""How many records of a kind `put_newest` retains."""

RETRY_S = 3.0
"""How long requests to a store that does not answer are repeated: a driver waits for it."""
_OF_ANOTHER = (CheckpointOfAnotherJob.__name__, OwnedByAnother.__name__)


@dataclass(frozen=True)
class DriverFailure:
    """A driver that failed.

    Args:
        ended_at_ms: when it ended, in ms since 1970.
        ran_s: how long it had run, in seconds.
        exit_code: its exit code; negative: the number of a signal.
        kind: the name of the error; empty: the driver wrote no reason, as when it is killed.
        what: what happened.
        data: what it means for the data.
        do: what to do.
        then: what its supervisor did.
        next_try_ms: when the supervisor starts the next driver, in ms since 1970; 0: never, or the
            operator decides it.
    """

    ended_at_ms: int
    ran_s: float
    exit_code: int
    kind: str = ""
    what: str = ""
    data: str = ""
    do: str = ""
    then: str = ""
    next_try_ms: int = 0

    @classmethod
    def now(
        cls,
        exit_code: int,
        ran_s: float,
        reason: Reason | None,
        *,
        then: str = "",
        delay_s: float | None = None,
    ) -> DriverFailure:
        """Return the failure of a driver that has just ended, with the reason that it wrote.

        Args:
            exit_code: its exit code; negative: the number of a signal.
            ran_s: how long it had run, in seconds.
            reason: None if it wrote none.
            then: what its supervisor does.
            delay_s: after how many seconds it starts the next driver; None: it starts none.
        """
        now_ms = time.time_ns() // 1_000_000
        parts = asdict(reason) if reason else {}
        next_try_ms = 0 if delay_s is None else now_ms + round(delay_s * 1000)
        return cls(now_ms, round(ran_s, 3), exit_code, **parts, then=then, next_try_ms=next_try_ms)


def write_failure(address: str, failure: DriverFailure) -> None:
    """Write a failure into the checkpoint at an address, and delete those that are too old.

    Nothing is written into a checkpoint without a lineage, or into one that the driver rejected because
    it belongs to another job. A failure to write is logged and changes nothing.
    """
    if failure.kind not in _OF_ANOTHER:
        write_newest(address, FOLDER, failure.ended_at_ms, asdict(failure))


def write_newest(address: str, folder: str, ended_at_ms: int, fields: Mapping[str, object]) -> None:
    """Write how a driver ended into a folder of a checkpoint that retains the newest; see `write_failure`."""
    try:
        checkpoint = open_store(address, retry_timeout_s=RETRY_S)
        if read_lineage(checkpoint) is None:
            return
        put_newest(checkpoint, folder, ended_at_ms, fields)
    except StoreUnavailable as error:
        log.warning("the end of the driver was not recorded for the console: %s", error.what)
    except Exception:
        # also what a damaged lineage raises: the next driver reports that, and must be started for it
        log.exception("the end of the driver was not recorded for the console")


def put_newest(
    checkpoint: ObjectStore, folder: str, at_ms: int, fields: Mapping[str, object]
) -> None:
    """Write a record, named after its time, into a folder, and delete those that are too old."""
    checkpoint.put(f"{folder}{at_ms:015d}", [json.dumps(fields).encode()])
    for name in sorted(checkpoint.entries(folder))[:-RETAINED]:
        checkpoint.delete(name)


def name_of(ended_at_ms: int) -> str:
    """Return the name of the object that has the failure of a driver that ended then."""
    return f"{FOLDER}{ended_at_ms:015d}"


def read_failure(checkpoint: ObjectStore, name: str) -> DriverFailure | None:
    """Return the failure in an object of FOLDER, None if it was deleted meanwhile.

    Raises:
        ValueError: the object is damaged, or has the format of another version.
        StoreUnavailable: the store did not answer.
    """
    return read_parsed(checkpoint, name, _parsed)


def _parsed(fields: Mapping[str, Any]) -> DriverFailure:
    return DriverFailure(
        ended_at_ms=int(fields["ended_at_ms"]),
        ran_s=finite(fields["ran_s"]),
        exit_code=int(fields["exit_code"]),
        **{part: str(fields[part]) for part in ("kind", "what", "data", "do", "then")},
        next_try_ms=int(fields.get("next_try_ms", 0)),
    )
