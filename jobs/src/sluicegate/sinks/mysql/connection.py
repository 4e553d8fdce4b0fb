"""A session with the server: its address, the login, and the session settings that an apply relies on.

The sink sets all of them itself, because a server's defaults may be lax or without a limit.
"""

from __future__ import annotations

import ipaddress
import math
import os
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast, get_args
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql
from pymysql.constants import CR

from sluicegate.errors import SettingsInvalid
from sluicegate.sinks.mysql import errors as mysql_errors

VARIABLE = "SLUICEGATE_MYSQL"
"""Holds the url of a sink that names none."""

TLS_VARIABLE = "SLUICEGATE_MYSQL_TLS"
"""`required`: every connection has TLS and checks the server, whatever its url says."""

SQL_MODE = (
    "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION"
)
"""Strict, so the server refuses values that it would otherwise truncate; backslashes escape, double
quotes are strings. NO_AUTO_VALUE_ON_ZERO: a 0 in an AUTO_INCREMENT column stays 0, as decided."""

_DEFAULT_PORT = 3306
_OPTIONS = ("ssl-mode", "ssl-ca", "ssl-cert", "ssl-key")
_CONNECT_TIMEOUT_S = 10
_UNREACHABLE_S = 20
_KEEPALIVE = {
    "TCP_KEEPIDLE": _UNREACHABLE_S // 2,
    "TCP_KEEPINTVL": _UNREACHABLE_S // 4,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": _UNREACHABLE_S * 1000,
}
"""Seconds, a count, and milliseconds; see `_open_socket`."""

_Mode: TypeAlias = Literal["PREFERRED", "VERIFY_CA", "VERIFY_IDENTITY"]

Connection: TypeAlias = "pymysql.connections.Connection[Any]"


@dataclass(frozen=True)
class TLS:
    """How a connection is secured, in the words of MySQL's own clients.

    Args:
        mode: PREFERRED: TLS if the server offers it, without checking the server. VERIFY_CA: TLS, and
            the server's certificate is checked. VERIFY_IDENTITY: its host name too.
        ca: file of the authorities; None: those of the system.
        cert: file of the client's certificate, or None.
        key: file of its key; None: it is in `cert`.
    """

    mode: _Mode = "PREFERRED"
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @classmethod
    def parse(cls, options: dict[str, str]) -> TLS:
        """Read the options of a url, and the variable that requires TLS.

        Raises:
            SettingsInvalid: they contradict each other, or a value is unknown.
        """
        default = "VERIFY_IDENTITY" if options else "PREFERRED"
        mode = options.get("ssl-mode", default).upper().replace("-", "_")
        ca, cert, key = (options.get(f"ssl-{name}") for name in ("ca", "cert", "key"))
        if mode == "REQUIRED":
            raise _bad_url("ssl-mode=REQUIRED does not check the server; use VERIFY_CA at least")
        if mode not in get_args(_Mode):
            raise _bad_url("ssl-mode is not PREFERRED, VERIFY_CA or VERIFY_IDENTITY")
        if mode == "PREFERRED" and (ca or cert or key):
            raise _bad_url("ssl-mode=PREFERRED checks no certificate, and files of some are given")
        if key and not cert:
            raise _bad_url("ssl-key is given without ssl-cert")
        required = os.environ.get(TLS_VARIABLE, "")
        if required not in ("", "required"):
            raise SettingsInvalid(
                f"{TLS_VARIABLE}={required!r} is unknown",
                data="nothing was written",
                do=f"set {TLS_VARIABLE}=required, or remove it",
            )
        if required and mode == "PREFERRED":
            mode = "VERIFY_IDENTITY"
        return cls(cast("_Mode", mode), ca, cert, key)

    def context(self) -> ssl.SSLContext | None:
        """Return how to connect; None for PREFERRED, which is what PyMySQL does by itself.

        Raises:
            SettingsInvalid: a file cannot be read.
        """
        if self.mode == "PREFERRED":
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert:
                context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            files = ", ".join(file for file in (self.ca, self.cert, self.key) if file)
            raise SettingsInvalid(
                f"the certificates for MySQL cannot be read from {files}: {error}",
                data="nothing was written",
                do="mount them where the url names them, on drivers and executors",
            ) from error
        context.check_hostname = self.mode == "VERIFY_IDENTITY"
        return context


@dataclass(frozen=True)
class Address:
    """A database and its login. Travels to executors; its repr shows no password."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str = ""
    tls: TLS = TLS()

    def __str__(self) -> str:
        return f"MySQL at {self.host}:{self.port}, database {self.database}, user {self.user}"

    @classmethod
    def parse(cls, url: str | None) -> Address:
        """Parse mysql://user:password@host:port/database[?OPTIONS]; None: the environment's url.

        The options are ssl-mode, ssl-ca, ssl-cert and ssl-key; see `TLS`.

        Raises:
            SettingsInvalid: names the problem, never the url, which contains a password.
        """
        text = url or os.environ.get(VARIABLE, "")
        if not text:
            raise _bad_url(f"no url is given and {VARIABLE} is not set")
        try:
            parts = urlsplit(text)
            port = parts.port or _DEFAULT_PORT
        except ValueError:  # its text would show the url
            raise _bad_url("host or port cannot be parsed") from None
        database = unquote(parts.path.strip("/"))
        options = parse_qs(parts.query)
        if parts.scheme not in ("mysql", "mariadb"):
            raise _bad_url("it does not start with mysql://")
        if not (parts.hostname and parts.username and database):
            raise _bad_url("host, user or database is missing")
        if unknown := sorted(options.keys() - set(_OPTIONS)):
            names, known = ", ".join(unknown), ", ".join(_OPTIONS)
            raise _bad_url(f"option {names} is unknown; the options are {known}")
        tls = TLS.parse({name: values[-1] for name, values in options.items()})
        user, password = unquote(parts.username), unquote(parts.password or "")
        return cls(parts.hostname, port, user, password, database, tls)

    def exposure(self, cipher: str) -> str:
        """Return what a stranger in the network can do to a connection; empty: nothing.

        Args:
            cipher: of the connection; empty: plain text.
        """
        if self.tls.mode != "PREFERRED" or _is_loopback(self.host):
            return ""
        if not cipher:
            return (
                f"the connection to {self.host} is plain text: the network can read and change rows"
            )
        return f"the certificate of {self.host} is not checked: another server could take its place"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bad_url(reason: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"the url of MySQL is invalid: {reason}",
        data="nothing was written",
        do=f"set url= or {VARIABLE} to mysql://user:password@host:port/database, with special "
        "characters percent-encoded",
    )


def connect(address: Address, *, timeout_s: float) -> Connection:
    """Return a session with autocommit, strict mode, UTC and READ COMMITTED.

    Args:
        address: of the database.
        timeout_s: limit of each wait: connecting, a read or write, a lock, idleness. The server then
            ends the session, which also releases the locks of a lost node.

    Raises:
        SettingsInvalid: a file of the TLS options cannot be read.
        SinkUnavailable, AccessDenied, TargetMissing: no connection.
    """
    socket_s = max(1, math.ceil(timeout_s))
    context = address.tls.context()
    try:
        connection: Connection = pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            database=address.database,
            charset="utf8mb4",
            autocommit=True,
            read_timeout=socket_s + 1,  # the server's own timeouts fire first: they name the cause
            write_timeout=socket_s + 1,
            ssl=context,  # with one, PyMySQL refuses a server that has no TLS
            defer_connect=True,
        )
        connection.connect(_open_socket(address, min(_CONNECT_TIMEOUT_S, socket_s)))
    except (pymysql.err.Error, OSError, RuntimeError) as error:
        raise mysql_errors.login_error(error, str(address)) from error
    try:
        prepare(connection, timeout_s)
    except (pymysql.err.Error, OSError) as error:
        connection.close()
        raise mysql_errors.login_error(error, str(address)) from error
    return connection


def _open_socket(address: Address, timeout_s: float) -> socket.socket:
    """Return a connection that fails when its server has not been reachable for about _UNREACHABLE_S.

    A lost node, or the former address of a pod, sends no reset: without these options a read would wait
    for its whole timeout.
    """
    try:
        opened = socket.create_connection((address.host, address.port), timeout_s)
    except OSError as error:
        refused = f"Can't connect to MySQL server on {address.host!r} ({error})"
        raise pymysql.err.OperationalError(CR.CR_CONN_HOST_ERROR, refused) from error
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:  # macOS lacks some
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened


def prepare(connection: Connection, timeout_s: float) -> None:
    """Set the session's settings."""
    idle_s = max(1, math.floor(timeout_s))
    settings = {
        "sql_mode": f"'{SQL_MODE}'",
        "time_zone": "'+00:00'",
        "wait_timeout": idle_s,
        "net_read_timeout": idle_s,
        "net_write_timeout": idle_s,
        # Row locks, and metadata locks, whose default is a day or a year.
        "innodb_lock_wait_timeout": idle_s,
        "lock_wait_timeout": idle_s,
        # Off on some servers for bulk loads; that would admit duplicates into a unique index.
        "unique_checks": 1,
        "foreign_key_checks": 1,
        # CHAIN or RELEASE would open a transaction, or close the session, after each COMMIT.
        "completion_type": "'NO_CHAIN'",
    }
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        cursor.execute("SET " + ", ".join(f"SESSION {k} = {v}" for k, v in settings.items()))
