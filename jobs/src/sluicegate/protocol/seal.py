"""The seal as a value, and its bytes: what stands in the epoch log where a lineage has ended.

Not here: when one may be created (`sealing`), where it is stored. Layout: a magic line, JSON, and
the SHA-256 of both.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from sluicegate.protocol.errors import EpochLogBroken, Sealed

MAGIC = b"sluicegate-seal-1\n"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Seal:
    """The end of a lineage.

    Args:
        id: random, drawn for the try at sealing; tells ours from another's.
        lineage: whose end it is.
        job: the job's name.
        epoch: the epoch that will never be decided, nor any after it.
        why: for people: what it was sealed for.
        sealed_at_ms: the sealer's clock, ms since 1970, for people only.
    """

    id: str
    lineage: str
    job: str
    epoch: int
    why: str
    sealed_at_ms: int

    def error(self) -> Sealed:
        """Return what a driver that meets the seal ends with."""
        return Sealed(
            f"lineage {self.lineage} of job {self.job} was sealed after epoch {self.epoch - 1}: "
            f"{self.why}",
            data="everything that was decided before is in every sink; nothing was written by this "
            "start, and nothing can be decided here any more",
            do="run the job on the checkpoint that its savepoint was restored into; if there is "
            "none, take a savepoint of this checkpoint and restore it",
        )


def encode_seal(seal: Seal) -> bytes:
    """Return the bytes that are stored for a seal."""
    body = MAGIC + json.dumps(asdict(seal), separators=(",", ":")).encode()
    return body + hashlib.sha256(body).digest()


def is_seal(stored: bytes) -> bool:
    """Say whether an object of the epoch log is a seal, whole or not, rather than a decision."""
    return stored.startswith(MAGIC)


def decode_seal(stored: bytes) -> Seal:
    """Return the seal in `stored`.

    Raises:
        EpochLogBroken: it is torn, changed, or of another version.
    """
    body, digest = stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise _unreadable()
    try:
        return Seal(**json.loads(body.removeprefix(MAGIC)))
    except (TypeError, ValueError) as error:
        raise _unreadable() from error


def _unreadable() -> EpochLogBroken:
    return EpochLogBroken(
        "a seal is torn, changed, or was written by another version",
        data="nothing can be decided behind it, so nothing is written",
        do="restore the object, or run the version of Sluicegate that wrote it",
    )
