"""Tells Kubernetes how far a driver is: an annotation on its own pod, for the operator to read.

One thread of its own sends the newest news: the first epoch at once, then at most every ten seconds.
Whoever has news only leaves it here, so that no epoch waits for the API server; what cannot be sent is
logged once for each kind of failure and tried again, and never ends a driver. Not here: what is news
(`spark.query`, `spark.driver`). Outside of a pod it does nothing.
"""

from __future__ import annotations

import datetime as dt
import http.client
import json
import logging
import os
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

log = logging.getLogger("sluicegate.progress")

ANNOTATION = "sluicegate.dev/progress"
HOST_VARIABLE = "KUBERNETES_SERVICE_HOST"
PORT_VARIABLE = "KUBERNETES_SERVICE_PORT"
NAME_VARIABLE = "SLUICEGATE_POD_NAME"
NAMESPACE_VARIABLE = "SLUICEGATE_POD_NAMESPACE"
UID_VARIABLE = "SLUICEGATE_POD_UID"
ACCOUNT_VARIABLE = "SLUICEGATE_SERVICEACCOUNT"
"""A folder with `token` and `ca.crt`."""

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

EVERY_S = 10.0
_REQUEST_S = 5.0
_LAST_S = 2.0
"""How long a query's end waits for its last news to be sent."""


class Refused(Exception):
    """The API server answered, and did not take the news."""

    def __init__(self, status: int, said: str) -> None:
        self.status = status
        super().__init__(f"HTTP {status}: {said}")


class Annotated(Protocol):
    """What takes an annotation."""

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation.

        Raises:
            OSError, http.client.HTTPException: no connection, no trust, no answer.
            Refused: the API server refuses it.
        """


@dataclass(frozen=True)
class OwnPod:
    """The pod that this process runs in, at the API server.

    Args:
        host: of the API server.
        port: likewise.
        namespace: of the pod.
        name: of the pod.
        uid: of the pod; another pod of its name is not touched. Empty: not looked at.
        account: the folder of the service account's token and the cluster's certificate authority.
    """

    host: str
    port: int
    namespace: str
    name: str
    uid: str
    account: Path

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> OwnPod | None:
        """Return the pod that the environment names, None outside of one."""
        given = os.environ if environment is None else environment
        host, name = given.get(HOST_VARIABLE), given.get(NAME_VARIABLE)
        namespace = given.get(NAMESPACE_VARIABLE)
        if not (host and name and namespace):
            return None
        return cls(
            host=host,
            port=int(given.get(PORT_VARIABLE) or 443),
            namespace=namespace,
            name=name,
            uid=given.get(UID_VARIABLE, ""),
            account=Path(given.get(ACCOUNT_VARIABLE) or ACCOUNT),
        )

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation by a JSON merge patch (RFC 7396); see `Annotated`."""
        metadata: dict[str, object] = {"annotations": {key: value}}
        if self.uid:
            metadata["uid"] = self.uid  # a patch that would change it is refused
        # both are read anew each time: the kubelet replaces them while the pod runs
        token = (self.account / "token").read_text(encoding="ascii").strip()
        trust = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
        connection = http.client.HTTPSConnection(
            self.host, self.port, timeout=_REQUEST_S, context=trust
        )
        try:
            connection.request(
                "PATCH",
                f"/api/v1/namespaces/{quote(self.namespace)}/pods/{quote(self.name)}",
                body=json.dumps({"metadata": metadata}),
                headers={
                    "Authorization": f"Bearer {token}",
                    "Content-Type": "application/merge-patch+json",
                    "Accept": "application/json",
                    "User-Agent": "sluicegate-driver",
                },
            )
            answer = connection.getresponse()
            said = answer.read()
            if answer.status >= http.client.MULTIPLE_CHOICES:
                raise Refused(answer.status, said[:300].decode(errors="replace"))
        finally:
            connection.close()


class Progress:
    """What a driver says of its progress.

    Args:
        pod: who is told; None: nobody.
        every_s: news after the first epoch are sent at most so often.
    """

    def __init__(self, pod: Annotated | None, every_s: float = EVERY_S) -> None:
        self._pod, self._every_s = pod, every_s
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._epoch: int | None = None
        self._at = 0.0
        self._unsent = self._closed = self._begun = False
        self._next = 0.0
        self._failures: set[str] = set()

    @classmethod
    def of_pod(cls) -> Progress:
        """Return the progress of the driver of this process."""
        return cls(OwnPod.read())

    @property
    def wanted(self) -> bool:
        """Whether anybody is told."""
        return self._pod is not None

    def before(self, epoch: int | None) -> None:
        """Say which epoch was in every sink when the query started; this is no news."""
        self._epoch = epoch

    def epoch(self, epoch: int) -> None:
        """Say that an epoch is in every sink."""
        with self._changed:
            if not self._begun:
                self._begun, self._next = True, 0.0
            self._epoch = epoch
            self._news()

    def idle(self) -> None:
        """Say that the stream lives and has nothing to do."""
        with self._changed:
            self._news()

    def due(self) -> bool:
        """Return whether news would be sent at once: looking for them may cost something."""
        return self.wanted and not self._unsent and time.monotonic() >= self._next

    def close(self) -> None:
        """Send what is not sent yet, if the API server answers soon, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_LAST_S)

    def _news(self) -> None:
        if self._pod is None or self._closed:
            return
        self._at, self._unsent = time.time(), True
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(self._pod,), name="sluicegate-progress", daemon=True
            )
            self._thread.start()
        self._changed.notify()

    def _run(self, pod: Annotated) -> None:
        while (value := self._awaited()) is not None:
            sent = self._sent(pod, value)
            with self._changed:
                self._unsent = self._unsent or not sent
                if self._closed and not sent:
                    return  # who ends does not wait for one that refuses or is silent

    def _awaited(self) -> str | None:
        """Wait for news that may be sent; None: there are none and never will be."""
        with self._changed:
            while not self._closed:
                left = self._next - time.monotonic()
                if self._unsent and left <= 0:
                    break
                self._changed.wait(left if self._unsent else None)
            if not self._unsent:
                return None
            # from here on, not from the answer: a first epoch meanwhile makes its own turn
            self._unsent, self._next = False, time.monotonic() + self._every_s
            at = dt.datetime.fromtimestamp(self._at, tz=dt.UTC)
            stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            return json.dumps({"epoch": self._epoch, "at": stamp})

    def _sent(self, pod: Annotated, value: str) -> bool:
        try:
            pod.annotate(ANNOTATION, value)
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver's work is not this
            self._failed(error)
            return False
        if self._failures:
            log.info("progress reaches the API server again")
            self._failures.clear()
        return True

    def _failed(self, error: Exception) -> None:
        kind = f"{type(error).__name__} {getattr(error, 'status', '')}"
        if kind in self._failures:
            return
        self._failures.add(kind)
        log.warning(
            "progress was not reported (%s): %s\n"
            "  data: the job goes on; the operator may take it for stuck\n"
            "  do: let the driver's service account patch its pod; look at the API server",
            type(error).__name__,
            error,
        )
