"""Objects below an address with size and time, a page at a time; and removing many in one request.

The library's own `Objects` gives names only. Called by the tasks beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from sluicegate.protocol.errors import StoreUnavailable

PAGE = 1000
"""Objects of a page, and of a request that removes: as many as S3 allows."""

_PATIENCE_S = 60.0


def opened(address: str) -> S3Store:
    """Return the store at an address, by the AWS_* variables."""
    parts = urlsplit(address)
    return S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        retry_config={"retry_timeout": timedelta(seconds=_PATIENCE_S)},
    )


def pages(address: str) -> Iterator[Sequence[obstore.ObjectMeta]]:
    """Yield what is below an address, in pages; names are below it too.

    Raises:
        StoreUnavailable: no answer, or a refusal.
    """
    try:
        yield from obstore.list(opened(address), chunk_size=PAGE)
    except (BaseError, FileNotFoundError) as error:  # the latter: there is no such bucket
        raise _unavailable(f"list {address}", error) from error


def remove(address: str, names: Sequence[str]) -> None:
    """Remove objects below an address; one that is not there is no error.

    Raises:
        StoreUnavailable: some may be left.
    """
    try:
        obstore.delete(opened(address), list(names))
    except (BaseError, OSError) as error:
        raise _unavailable(f"remove {len(names)} objects below {address}", error) from error


def _unavailable(what: str, error: Exception) -> StoreUnavailable:
    said = " ".join(str(error).partition("Debug source")[0].split())[:400]
    return StoreUnavailable(
        f"the store did not {what}: {said}",
        data="whether all of it was done is unknown; doing it again does the rest",
        do="look at the store (keys, rights, network); it is tried again",
    )
