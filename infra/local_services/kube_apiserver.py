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
from pathlib import Path
from typing import Final, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from infra.local_services.process import Server, ServiceError, answers_ok, free_ports
from infra.toolchain import go_programs

ADMIN: Final = "admin"
"""The user with all rights; it always exists."""

_ISSUER: Final = "https://kubernetes.default.svc"
_ETCD_BYTES: Final = 8 << 30
"""Limit of etcd's data: with its default, 2 GiB, a benchmark with 10,000 jobs is refused further writes."""


class Etcd(Server):
    """An etcd with its data in one folder."""

    NAME = "etcd"
    LOG = "etcd.log"
    START_TIMEOUT_S = 60.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.url, self._peers = (f"http://127.0.0.1:{port}" for port in free_ports(2))

    def _prepare(self) -> list[str]:
        listen = ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        listen += ["--listen-peer-urls", self._peers, "--initial-advertise-peer-urls", self._peers]
        listen += ["--initial-cluster", f"default={self._peers}"]
        # what a process wrote before it was killed is in the page cache; no test cuts the power
        data = ["--data-dir", str(self._folder / "etcd"), "--unsafe-no-fsync"]
        data += ["--quota-backend-bytes", str(_ETCD_BYTES)]
        return [str(_existing(go_programs.ETCD.binary)), *listen, *data]

    def _ready(self) -> bool:
        address = self.url.removeprefix("http://")
        return answers_ok(http.client.HTTPConnection(address, timeout=2.0), "/health")


class ApiServer(Server):
    """A kube-apiserver on an etcd."""

    NAME = "kube-apiserver"
    LOG = "kube-apiserver.log"
    START_TIMEOUT_S = 120.0

    def __init__(self, folder: Path, etcd: str, users: Mapping[str, Sequence[str]]) -> None:
        """Choose a port and tokens; `users` has the groups of each user."""
        super().__init__(folder)
        self._etcd, self._users = etcd, users
        (self.port,) = free_ports(1)
        self.certificate: Final = folder / "tls" / "apiserver.crt"
        """Self-signed, created by the server at its first start."""
        drawn = self._stored_secrets("tokens", *(16 for _ in users))
        self.tokens: Final = dict(zip(users, drawn, strict=True))

    def _prepare(self) -> list[str]:
        users = self._folder / "users.csv"
        users.touch(mode=0o600)
        rows = (
            f'{self.tokens[user]},{user},{user},"{",".join(groups)}"\n'
            for user, groups in self._users.items()
        )
        users.write_text("".join(rows), encoding="utf-8")
        key = self._folder / "service-accounts.key"
        if not key.is_file():
            key.touch(mode=0o600)
            key.write_bytes(_new_key())
        flags = {
            "etcd-servers": self._etcd,
            "cert-dir": str(self.certificate.parent),
            "bind-address": "127.0.0.1",
            # otherwise it picks a public interface, and an Endpoints object with a loopback address is refused
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",
            "secure-port": str(self.port),
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
        if not self.certificate.is_file():
            return False
        try:
            trusts = ssl.create_default_context(cafile=str(self.certificate))
        except ssl.SSLError:
            return False  # the server creates the file first and fills it then
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=5.0, context=trusts
        )
        token = {"Authorization": f"Bearer {self.tokens[ADMIN]}"}
        return answers_ok(connection, "/readyz", token)


class KubernetesServer:
    """An etcd and a kube-apiserver; each can be stopped, killed and restarted separately.

    Args:
        folder: where both keep their data.
        users: the groups of more users than `admin`, for tests of RBAC. The API issues tokens of service
            accounts (TokenRequest).
    """

    def __init__(self, folder: Path, users: Mapping[str, Sequence[str]] | None = None) -> None:
        self._folder = folder
        self.etcd: Final = Etcd(folder)
        known = {ADMIN: ("system:masters",), **(users or {})}
        self.api: Final = ApiServer(folder, self.etcd.url, known)
        self.host: Final = "127.0.0.1"
        self.port: Final = self.api.port
        self.url: Final = f"https://{self.host}:{self.port}"
        self.certificate: Final = self.api.certificate
        """What clients trust; it exists after the first start."""

    def token(self, user: str = ADMIN) -> str:
        """Return a user's token; KeyError if there is no such user."""
        return self.api.tokens[user]

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
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()


def _existing(binary: Path) -> Path:
    """Return a binary that exists. Nothing is built: that takes too long for a test."""
    reason = "" if binary.is_file() else go_programs.api_server_missing_reason()
    if reason:
        raise ServiceError(f"No Kubernetes API server can run on this machine: {reason}")
    return binary


def _new_key() -> bytes:
    """Return the key that signs tokens of service accounts."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
