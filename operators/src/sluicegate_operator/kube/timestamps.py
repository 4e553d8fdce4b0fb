"""RFC 3339 timestamps, as the Kubernetes API has them; `api`, `kube` and `controllers` share them."""

from __future__ import annotations

import datetime as dt


def to_text(instant: float) -> str:
    """Return seconds since 1970 as RFC 3339 text in UTC with milliseconds."""
    at = dt.datetime.fromtimestamp(round(instant, 3), dt.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_instant(text: str) -> float:
    """Return an RFC 3339 text as seconds since 1970.

    Raises:
        ValueError: the text is not RFC 3339.
    """
    return round(dt.datetime.fromisoformat(text).timestamp(), 3)


def parse_instant(text: str | None) -> float | None:
    """Return an optional timestamp as seconds since 1970."""
    return to_instant(text) if text else None
