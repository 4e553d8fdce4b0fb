"""A real Kubernetes API server with its etcd, on this machine: nothing but the API.

No kubelet, scheduler or controllers: pods stay Pending, no garbage is collected, a namespace that
is deleted stays, and no pod is given a service account. Authorization is RBAC, as on a cluster. Not
for production: one etcd without fsync, loopback only. Called by the operator's tests.
"""

import base64
import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from infra import kubernetes
from infra.embedded.process import ServiceError, free_ports
from infra.embedded.server import Server

ADMIN: Final = "admin"
"""The user that may do everything; always there."""

_ISSUER: Final = "https://kubernetes.default.svc"


class Etcd(Server):
    """One etcd with its data in one folder."""

    NAME = "etcd"
    LOG = "etcd.log"
    START_TIMEOUT_S = 60.0

    def __init__(self, folder: Path) -> None:
        """Choose ports, kept over restarts; nothing starts yet."""
        super().__init__(folder)
        self._clients, self._peers = (f"http://127.0.0.1:{port}" for port in free_ports(2))

    @property
    def url(self) -> str:
        """Where it serves its clients."""
        return self._clients

    def _prepare(self) -> list[str]:
        self._folder.mkdir(parents=True, exist_ok=True)
        listen = ["--listen-client-urls", self._clients, "--advertise-client-urls", self._clients]
        listen += ["--listen-peer-urls", self._peers, "--initial-advertise-peer-urls", self._peers]
        data = [
            "--data-dir",
            str(self._folder / "etcd"),
            "--initial-cluster",
            f"default={self._peers}",
        ]
        # what a process wrote before it was killed is in the page cache; no test cuts the power
        return [str(_there(kubernetes.ETCD_SERVER.binary)), *listen, *data, "--unsafe-no-fsync"]

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection(self._clients.removeprefix("http://"), timeout=2.0)
        return _answers_ok(connection, "/health", {})


@dataclass(frozen=True)
class _Access:
    """How clients reach the API server: kept over restarts."""

    port: int
    certificate: Path
    """Made by the server when it first starts: it is its own authority."""
    tokens: Mapping[str, str]
    """A token for each user."""


class ApiServer(Server):
    """One kube-apiserver on an etcd."""

    NAME = "kube-apiserver"
    LOG = "kube-apiserver.log"
    START_TIMEOUT_S = 120.0

    def __init__(self, folder: Path, etcd: str, users: Mapping[str, Sequence[str]]) -> None:
        """Choose a port, kept over restarts; nothing starts yet.

        Args:
            folder: of certificates and keys.
            etcd: its URL.
            users: groups of each user.
        """
        super().__init__(folder)
        self._etcd = etcd
        self._users = users
        (port,) = free_ports(1)
        drawn = self._kept_secrets("tokens", *(16 for _ in users))
        self.access: Final = _Access(
            port, folder / "tls" / "apiserver.crt", dict(zip(users, drawn, strict=True))
        )

    def _prepare(self) -> list[str]:
        users = self._folder / "users.csv"
        users.touch(mode=0o600)
        rows = (
            f'{self.access.tokens[user]},{user},{user},"{",".join(groups)}"\n'
            for user, groups in self._users.items()
        )
        users.write_text("".join(rows), encoding="utf-8")
        key = self._folder / "service-accounts.key"
        if not key.is_file():
            key.touch(mode=0o600)
            key.write_bytes(_new_key())
        flags = {
            "etcd-servers": self._etcd,
            "cert-dir": str(self.access.certificate.parent),
            "bind-address": "127.0.0.1",
            # else it looks for an interface to the world, and an Endpoints object of loopback is refused
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",
            "secure-port": str(self.access.port),
            "service-cluster-ip-range": "10.0.0.0/24",
            "service-account-issuer": _ISSUER,
            "service-account-key-file": str(key),
            "service-account-signing-key-file": str(key),
            "authorization-mode": "RBAC",
            "token-auth-file": str(users),
            # it waits for a controller that gives each namespace an account; there is none
            "disable-admission-plugins": "ServiceAccount",
        }
        binary = _there(kubernetes.API_SERVER.binary)
        return [str(binary), *(f"--{name}={value}" for name, value in flags.items())]

    def _ready(self) -> bool:
        if not self.access.certificate.is_file():
            return False
        trusts = ssl.create_default_context(cafile=str(self.access.certificate))
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.access.port, timeout=5.0, context=trusts
        )
        token = {"Authorization": f"Bearer {self.access.tokens[ADMIN]}"}
        return _answers_ok(connection, "/readyz", token)


class KubernetesServer:
    """An etcd and a kube-apiserver: each may be stopped, killed and started again by itself.

    Args:
        folder: their data; they stay for as long as it does.
        users: groups of users beside `admin`, for tests of RBAC. Tokens of service accounts are to
            be had from the API (TokenRequest).
    """

    def __init__(self, folder: Path, users: Mapping[str, Sequence[str]] | None = None) -> None:
        """Choose ports and tokens; nothing starts yet."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.etcd: Final = Etcd(folder)
        known = {ADMIN: ("system:masters",), **(users or {})}
        self.api: Final = ApiServer(folder, self.etcd.url, known)

    @property
    def host(self) -> str:
        """The address that it listens on."""
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self.api.access.port

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"https://{self.host}:{self.port}"

    @property
    def certificate(self) -> Path:
        """The file by which clients know the server; there once it has started."""
        return self.api.access.certificate

    def token(self, user: str = ADMIN) -> str:
        """Return a user's token.

        Raises:
            KeyError: there is no such user.
        """
        return self.api.access.tokens[user]

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """Write the file by which kubectl and clients find the server as a user; return its path."""
        certificate = base64.b64encode(self.certificate.read_bytes()).decode()
        cluster = {"server": self.url, "certificate-authority-data": certificate}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": user, "context": {"cluster": "embedded", "user": user}}],
            "current-context": user,
        }
        named = user.replace(":", "-")  # KUBECONFIG is a list, with colons
        file = self._folder / f"kubeconfig-{named}"
        file.touch(mode=0o600)
        file.write_text(json.dumps(content), encoding="utf-8")  # which is YAML too
        return file

    def start(self) -> Self:
        """Start both, on the data they have, and return when the API is served."""
        try:
            self.etcd.start()
            self.api.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop both; etcd last: without it an API server takes minutes to end. Safe to repeat."""
        self.api.stop()
        self.etcd.stop()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()


def _there(binary: Path) -> Path:
    """Return a program that is built; none is built here, as that takes too long to wait for."""
    gap = "" if binary.is_file() else kubernetes.gap()
    if gap:
        raise ServiceError(f"There is no Kubernetes API server here: {gap}")
    return binary


def _answers_ok(
    connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str]
) -> bool:
    try:
        connection.request("GET", path, headers=dict(headers))
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False  # it does not listen yet; the caller's deadline ends the wait
    finally:
        connection.close()


def _new_key() -> bytes:
    """Return a key that tokens of service accounts are signed with."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
