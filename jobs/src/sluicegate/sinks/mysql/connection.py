"""A session with the server: its address, the login, and the session settings that an apply relies on.

The sink sets all of them itself, because a server's defaults may be lax or without a limit.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql

from sluicegate.errors import SettingsInvalid
from sluicegate.sinks.mysql import errors as mysql_errors

VARIABLE = "SLUICEGATE_MYSQL"
"""Holds the url of a sink that names none."""

SQL_MODE = (
    "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION"
)
"""Strict, so the server refuses values that it would otherwise truncate; backslashes escape, double
quotes are strings. NO_AUTO_VALUE_ON_ZERO: a 0 in an AUTO_INCREMENT column stays 0, as decided."""

_DEFAULT_PORT = 3306
_CONNECT_TIMEOUT_S = 10

Connection: TypeAlias = "pymysql.connections.Connection[Any]"


@dataclass(frozen=True)
class Address:
    """A database and its login. Travels to executors; its repr shows no password."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str = ""
    ssl_ca: str | None = None

    def __str__(self) -> str:
        return f"MySQL at {self.host}:{self.port}, database {self.database}, user {self.user}"

    @classmethod
    def parse(cls, url: str | None) -> Address:
        """Parse mysql://user:password@host:port/database[?ssl-ca=FILE]; None: the environment's url.

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
        ssl_ca = options.pop("ssl-ca", [None])[-1]
        if parts.scheme not in ("mysql", "mariadb"):
            raise _bad_url("it does not start with mysql://")
        if not (parts.hostname and parts.username and database):
            raise _bad_url("host, user or database is missing")
        if options:
            names = ", ".join(sorted(options))
            raise _bad_url(f"option {names} is unknown; the only option is ssl-ca")
        user, password = unquote(parts.username), unquote(parts.password or "")
        return cls(parts.hostname, port, user, password, database, ssl_ca)


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
        SinkUnavailable, AccessDenied, TargetMissing: no connection.
    """
    socket_s = max(1, math.ceil(timeout_s))
    try:
        connection: Connection = pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            database=address.database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=min(_CONNECT_TIMEOUT_S, socket_s),
            read_timeout=socket_s + 1,  # the server's own timeouts fire first: they name the cause
            write_timeout=socket_s + 1,
            ssl={"ca": address.ssl_ca} if address.ssl_ca else None,
        )
    except (pymysql.err.Error, OSError, RuntimeError) as error:
        raise mysql_errors.login_error(error, str(address)) from error
    try:
        prepare(connection, timeout_s)
    except (pymysql.err.Error, OSError) as error:
        connection.close()
        raise mysql_errors.login_error(error, str(address)) from error
    return connection


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
