"""A real S3 server, versitygw, on a folder of this machine, with a single user. Not for production."""

import http.client
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from infra.local_services.process import Server, ServiceError, answers_ok, free_ports
from infra.toolchain import go_programs
from infra.toolchain.go_build import BuildError

_BUCKET: Final = "sluicegate"
_REGION: Final = "us-east-1"
_HEALTH: Final = "/health"


@dataclass(frozen=True)
class S3Endpoint:
    """A prefix on S3 that clients can reach."""

    url: str  # `s3://bucket/prefix`; tests put objects below it under unique names
    endpoint: str = ""  # the server's URL; empty for Amazon S3
    access_key: str = ""  # empty if the environment has the keys
    secret_key: str = field(default="", repr=False)

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables with which obstore and a driver reach it."""
        if not self.access_key:
            return {}
        return {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": _REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    def through_proxy(self, endpoint: str) -> "S3Endpoint":
        """Return the same prefix, reached through a proxy."""
        return replace(self, endpoint=endpoint)


class S3Server(Server):
    """One versitygw with its objects in one folder."""

    NAME = "versitygw"
    LOG = "versitygw.log"
    START_TIMEOUT_S = 30.0

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        """Choose a port; `certificate` is a folder with tls.crt, tls.key and ca.crt, None: no TLS."""
        super().__init__(folder)
        self._certificate = certificate
        (self._port,) = free_ports(1)
        access, secret = self._stored_secrets("s3-keys", 8, 16)
        endpoint = f"http{'s' if certificate else ''}://127.0.0.1:{self._port}"
        self.endpoint: Final = S3Endpoint(f"s3://{_BUCKET}", endpoint, access, secret)

    def _environment(self) -> Mapping[str, str]:
        access, secret = self.endpoint.access_key, self.endpoint.secret_key
        return os.environ | {"ROOT_ACCESS_KEY": access, "ROOT_SECRET_KEY": secret}

    def _ready(self) -> bool:
        return answers_ok(self._connection(urlsplit(self.endpoint.endpoint).netloc), _HEALTH)

    def _connection(self, address: str) -> http.client.HTTPConnection:
        if self._certificate is None:
            return http.client.HTTPConnection(address, timeout=2.0)
        trust = ssl.create_default_context(cafile=self._certificate / "ca.crt")
        return http.client.HTTPSConnection(address, timeout=2.0, context=trust)

    def _prepare(self) -> list[str]:
        """Create the bucket, which is a folder, and return the command that runs the server."""
        try:
            binary = go_programs.VERSITYGW.build()
        except BuildError as error:
            raise ServiceError(f"No S3 server can run on this machine: {error}") from error
        objects, metadata = self._folder / "s3" / "objects", self._folder / "s3" / "metadata"
        (objects / _BUCKET).mkdir(parents=True, exist_ok=True)
        metadata.mkdir(exist_ok=True)
        listen = ["--port", f"127.0.0.1:{self._port}", "--region", _REGION, "--health", _HEALTH]
        if self._certificate:
            listen += ["--cert", str(self._certificate / "tls.crt")]
            listen += ["--key", str(self._certificate / "tls.key")]
        # metadata in files, because not every file system has extended attributes
        store = ["posix", "--fsync", "--sidecar", str(metadata), str(objects)]
        return [str(binary), *listen, "--quiet", *store]
