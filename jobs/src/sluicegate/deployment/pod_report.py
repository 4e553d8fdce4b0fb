"""A report of a driver about itself: an annotation of its own pod."""

from __future__ import annotations

import logging
from typing import Protocol


class Annotatable(Protocol):
    """An object with annotations."""

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation.

        Raises:
            OSError, http.client.HTTPException: connection, certificate or response failed.
            RequestRejected: the API server rejected the request.
        """


class PodReport:
    """An annotation that a driver writes again and again. A failure is logged once per kind.

    Args:
        pod: receives the annotation.
        key: its key.
        logger: logs failures.
        what: what is reported, such as 'progress'.
        data: what a failure means for the data.
    """

    def __init__(
        self, pod: Annotatable, key: str, logger: logging.Logger, *, what: str, data: str
    ) -> None:
        self._pod, self._key, self._log = pod, key, logger
        self._what, self._data = what, data
        self._failures: set[str] = set()

    def send(self, value: str) -> bool:
        """Write the annotation; return whether the API server has it. No failure is raised."""
        try:
            self._pod.annotate(self._key, value)
        except Exception as error:  # noqa: BLE001 - no failure here may end the driver
            self._log_failure(error)
            return False
        if self._failures:
            self._log.info("reports of %s reach the API server again", self._what)
            self._failures.clear()
        return True

    def _log_failure(self, error: Exception) -> None:
        kind = f"{type(error).__name__} {getattr(error, 'status', '')}"
        if kind in self._failures:
            return
        self._failures.add(kind)
        self._log.warning(
            "cannot report %s (%s): %s\n"
            "  data: %s\n"
            "  do: allow the driver's service account to patch its pod; check the API server",
            self._what,
            type(error).__name__,
            error,
            self._data,
        )
