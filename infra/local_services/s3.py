"""A real S3 server, versitygw, on a folder of this machine. Not for production.

Its users and their rights are made by the script of the chart object-store, as in a cluster.
"""

import http.client
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from infra.local_services.process import Server, ServiceError, answers_ok, free_ports
from infra.toolchain import go_programs
from infra.toolchain.go_build import BuildError
from infra.workspace import CHECKOUT

_ACCESS: Final = CHECKOUT / "charts" / "object-store" / "files" / "access.py"
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

    @property
    def bucket(self) -> str:
        """The bucket."""
        return self.url.removeprefix("s3://").partition("/")[0]

    def prefix(self, name: str) -> str:
        """Return a prefix in the bucket, below this one."""
        return f"{self.url}/{name}".removeprefix(f"s3://{self.bucket}/")

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

    def __init__(
        self,
        folder: Path,
        certificate: Path | None = None,
        users: Mapping[str, str] = MappingProxyType({}),
        read_only: Collection[str] = (),
    ) -> None:
        """Choose a port.

        Args:
            folder: of the objects.
            certificate: a folder with tls.crt, tls.key and ca.crt; None: no TLS.
            users: name and `s3://bucket/prefix` of users besides root; see `make_buckets`.
            read_only: those of them that may only read and list.
        """
        super().__init__(folder)
        self.data: Final = folder / "s3"
        self._certificate, self._read_only = certificate, read_only
        (self._port,) = free_ports(1)
        access, secret = self._stored_secrets("s3-keys", 8, 16)
        endpoint = f"http{'s' if certificate else ''}://127.0.0.1:{self._port}"
        self.endpoint: Final = S3Endpoint(f"s3://{_BUCKET}", endpoint, access, secret)
        self.users: Final = {
            name: S3Endpoint(url, endpoint, *self._stored_secrets(f"s3-keys-{name}", 8, 16))
            for name, url in users.items()
        }

    def make_buckets(self) -> None:
        """Create the buckets of the users, who may use their prefix and nothing else."""
        keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        root = (self.endpoint.access_key, self.endpoint.secret_key)
        self._run_access(
            "buckets",
            {
                **dict(zip(keys, root, strict=True)),
                "AWS_REGION": _REGION,
                "ENDPOINT": self.endpoint.endpoint,
                "TIMEOUT_S": "10",
            },
        )

    def _run_access(self, verb: str, variables: Mapping[str, str]) -> None:
        """Run the script of the chart, with the users' keys in files as Secrets are mounted."""
        keys = self._folder / "keys"
        users = []
        for name, user in self.users.items():
            (keys / name).mkdir(parents=True, exist_ok=True)
            (keys / name / "accessKeyId").write_text(user.access_key, encoding="utf-8")
            (keys / name / "secretAccessKey").write_text(user.secret_key, encoding="utf-8")
            place = {"bucket": user.bucket, "prefix": user.prefix("")}
            users.append({"name": name, **place, "readOnly": name in self._read_only})
        done = subprocess.run(
            [sys.executable, str(_ACCESS), verb],
            env=os.environ | variables | {"USERS": json.dumps(users), "KEYS": str(keys)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ServiceError(f"The users of {self.NAME} could not be made. {done.stderr}")

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
        """Create root's bucket, which is a folder, and return the command that runs the server."""
        try:
            binary = go_programs.VERSITYGW.build()
        except BuildError as error:
            raise ServiceError(f"No S3 server can run on this machine: {error}") from error
        objects, metadata = self.data / "objects", self.data / "metadata"
        objects.mkdir(parents=True, exist_ok=True)
        if _BUCKET not in {user.bucket for user in self.users.values()}:
            # without an owner, which a copy by a user needs: only root may use it
            (objects / _BUCKET).mkdir(exist_ok=True)
        metadata.mkdir(exist_ok=True)
        listen = ["--port", f"127.0.0.1:{self._port}", "--region", _REGION, "--health", _HEALTH]
        if self._certificate:
            listen += ["--cert", str(self._certificate / "tls.crt")]
            listen += ["--key", str(self._certificate / "tls.key")]
        if self.users:
            accounts = self._folder / "iam"
            accounts.mkdir(mode=0o700, exist_ok=True)
            root = {"ROOT_ACCESS_KEY_ID": self.endpoint.access_key, "IAM_DIR": str(accounts)}
            self._run_access("users", root)
            listen += ["--iam-dir", str(accounts), "--iam-cache-disable"]
        # metadata in files, because not every file system has extended attributes
        store = ["posix", "--fsync", "--sidecar", str(metadata), str(objects)]
        return [str(binary), *listen, "--quiet", *store]
