"""Requests of a hook Job, which are retried until a deadline."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.kube.client import Api, ApiError
from sluicegate_operator.kube.resource import Json

log = logging.getLogger(__name__)

_RETRY_S: Final = 2.0


class Requests:
    """An API server that may be busy or starting.

    Args:
        api: the API server.
        timeout_s: how long to wait for it, and for what others create.
    """

    def __init__(self, api: Api, timeout_s: float) -> None:
        self.api: Final = api
        self._deadline = time.monotonic() + timeout_s

    async def find(self, path: str) -> Json | None:
        """Return an object, or None if it does not exist.

        Raises:
            SettingsInvalid: the API server refuses, or does not answer in time.
        """
        while True:
            try:
                return await self.api.request("GET", path)
            except ApiError as error:
                if error.missing:
                    return None
                await self.pause(error, f"{path} cannot be read: {error}")

    async def apply(self, path: str, body: Json, query: Mapping[str, str]) -> None:
        """Apply an object on the server; raises like `find`."""
        kind = "application/apply-patch+yaml"
        while True:
            try:
                await self.api.request("PATCH", path, body, query=query, content_type=kind)
            except ApiError as error:
                await self.pause(error, f"{path} cannot be applied: {error}")
            else:
                return

    async def pause(self, error: ApiError | None, what: str) -> None:
        """Wait before the next attempt.

        Raises:
            SettingsInvalid: the next attempt would fail in the same way, or the time is over.
        """
        if (error and _is_final(error.status)) or time.monotonic() > self._deadline:
            raise SettingsInvalid(
                what,
                data="no existing value was changed; pods that need it do not start",
                do="create what is missing, or repair the values of the chart, and install or upgrade again",
            ) from error
        log.warning("%s; retrying", what)
        await asyncio.sleep(_RETRY_S)


def _is_final(status: int) -> bool:
    """Return whether the same request would get the same answer; without an answer the status is 0."""
    busy = status == HTTPStatus.TOO_MANY_REQUESTS
    return HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and not busy
