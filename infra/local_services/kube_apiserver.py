"""A real Kubernetes API server with its etcd, on this machine, for the operator's tests.

There is no kubelet, scheduler or controller manager: pods stay Pending, nothing is garbage collected, a
deleted namespace stays, and no pod gets a service account. Authorization is RBAC, as on a cluster. Not for
production: one etcd without fsync, on the loopback address only.
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

from infra.local_services.process import Server, ServiceError, free_ports
from infra.toolchain import go_programs

ADMIN: Final = "admin"
"""The user with all rights; it always exists."""

_ISSUER: Final = "https://kubernetes.default.svc"


class Etcd(Server):
    """An etcd with its data in one folder."""

    NAME = "etcd"
    LOG = "etcd.log"
    START_TIMEOUT_S = 60.0

    def __init__(self, folder: Path) -> None:
        """Choose ports, which are kept over restarts; nothing starts yet."""
        super().__init__(folder)
        self._clients, self._peers = (f"http://127.0.0.1:{port}" for port in free_ports(2))

    @property
    def url(self) -> str:
        """The URL for clients."""
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
        return [str(_existing(go_programs.ETCD.binary)), *listen, *data, "--unsafe-no-fsync"]

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection(self._clients.removeprefix("http://"), timeout=2.0)
        return _answers_ok(connection, "/health", {})


@dataclass(frozen=True)
class _Access:
    """How clients reach the API server; kept over restarts."""

    port: int
    certificate: Path
    """Self-signed, created by the server at its first start."""
    tokens: Mapping[str, str]
    """A token for each user."""


class ApiServer(Server):
    """A kube-apiserver on an etcd."""

    NAME = "kube-apiserver"
    LOG = "kube-apiserver.log"
    START_TIMEOUT_S = 120.0

    def __init__(self, folder: Path, etcd: str, users: Mapping[str, Sequence[str]]) -> None:
        """Choose a port, which are kept over restarts; nothing starts yet.

        Args:
            folder: where certificates and keys are stored.
            etcd: the URL of etcd.
            users: the groups of each user.
        """
        super().__init__(folder)
        self._etcd = etcd
        self._users = users
        (port,) = free_ports(1)
        drawn = self._stored_secrets("tokens", *(16 for _ in users))
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
            # otherwise it picks a public interface, and an Endpoints object with a loopback address is refused
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",
            "secure-port": str(self.access.port),
            "service-cluster-ip-range": "10.0.0.0/24",
            "service-account-issuer": _ISSUER,
            "service-account-key-file": str(key),
            "service-account-signing-key-file": str(key),
            "authorization-mode": "RBAC",
            "token-auth-file": str(users),
            # it waits for the controller that creates service accounts, which does not run
            "disable-admission-plugins": "ServiceAccount",
        }
        binary = _existing(go_programs.API_SERVER.binary)
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
    """An etcd and a kube-apiserver; each can be stopped, killed and restarted separately.

    Args:
        folder: where both keep their data.
        users: the groups of more users than `admin`, for tests of RBAC. The API issues tokens of service
            accounts (TokenRequest).
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
        """The address that the API server listens on."""
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """The port that the API server listens on."""
        return self.api.access.port

    @property
    def url(self) -> str:
        """The URL of the API."""
        return f"https://{self.host}:{self.port}"

    @property
    def certificate(self) -> Path:
        """The certificate that clients trust; it exists after the first start."""
        return self.api.access.certificate

    def token(self, user: str = ADMIN) -> str:
        """Return a user's token.

        Raises:
            KeyError: the user does not exist.
        """
        return self.api.access.tokens[user]

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """Write a kubeconfig for a user and return its path."""
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
        named = user.replace(":", "-")  # KUBECONFIG is a list that is separated by colons
        file = self._folder / f"kubeconfig-{named}"
        file.touch(mode=0o600)
        file.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
        return file

    def start(self) -> Self:
        """Start both on their data and return when the API is served."""
        try:
            self.etcd.start()
            self.api.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop both, etcd last: without etcd an API server takes minutes to end. Safe to repeat."""
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


def _existing(binary: Path) -> Path:
    """Return a binary that exists. Nothing is built: that takes too long for a test."""
    reason = "" if binary.is_file() else go_programs.api_server_missing_reason()
    if reason:
        raise ServiceError(f"No Kubernetes API server can run on this machine: {reason}")
    return binary


def _answers_ok(
    connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str]
) -> bool:
    try:
        connection.request("GET", path, headers=dict(headers))
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False  # it does not listen yet; the caller has a deadline
    finally:
        connection.close()


def _new_key() -> bytes:
    """Return the key that signs tokens of service accounts."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
