"""Java's store of certificates, without the time at which each one was put into it.

Format: JKS, version 2, as `sun.security.provider.JavaKeyStore` of OpenJDK 17 reads and writes it: a list of
entries, and a SHA-1 of the password, a phrase and the list. Debian's package writes the store when it is
installed. Not here: any other format, which is left as it is. Called by `debian`.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

from infra.images.layers import EPOCH

_HEAD: Final = struct.pack(">II", 0xFEEDFEED, 2)
_CERTIFICATE: Final = 2
_DIGEST: Final = 20
_PHRASE: Final = b"Mighty Aphrodite"
_PASSWORD: Final = "changeit"  # noqa: S105 - Java's own; what it guards is public


def timeless(store: bytes) -> bytes:
    """Return a store with its entries in order and of one time; what is none is returned as it is."""
    if not store.startswith(_HEAD) or store[-_DIGEST:] != _digest(store[:-_DIGEST]):
        return store
    count, at = struct.unpack_from(">I", store, len(_HEAD))[0], len(_HEAD) + 4
    entries = []
    for _ in range(count):
        begin = at
        (tag,) = struct.unpack_from(">I", store, at)
        if tag != _CERTIFICATE:
            return store
        alias = _text_end(store, at + 4)
        kind = _text_end(store, alias + 8)  # the time is between them
        at = kind + 4 + struct.unpack_from(">I", store, kind)[0]
        time = struct.pack(">q", EPOCH * 1000)
        entries.append(store[begin:alias] + time + store[alias + 8 : at])
    made = _HEAD + struct.pack(">I", count) + b"".join(sorted(entries))
    return made + _digest(made)


def _text_end(store: bytes, at: int) -> int:
    return at + 2 + int(struct.unpack_from(">H", store, at)[0])


def _digest(data: bytes) -> bytes:
    secret = _PASSWORD.encode("utf-16-be") + _PHRASE + data
    return hashlib.sha1(secret, usedforsecurity=False).digest()
