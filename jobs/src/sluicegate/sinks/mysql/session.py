"""A session with the server: where it is, how to log in, and the settings that an apply relies on.

Not here: transactions (writer) and what a table looks like (preflight). Every setting is made by
us, because a server's own may be lax or endless. Called by `preflight` and `writer`.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.sinks.mysql import faults

VARIABLE = "SLUICEGATE_MYSQL"
"""Where the url is taken from when a sink names none."""

SQL_MODE = (
    "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION"
)
"""Strict, so that the server refuses what it would otherwise cut; backslashes escape, double quotes
are strings. NO_AUTO_VALUE_ON_ZERO: a 0 in an AUTO_INCREMENT column stays what was decided."""

_DEFAULT_PORT = 3306
_CONNECT_TIMEOUT_S = 10

Connection: TypeAlias = "pymysql.connections.Connection[Any]"


@dataclass(frozen=True)
class Address:
    """Where a database is and who logs in. Travels to executors; its repr shows no password."""

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
        """Read mysql://user:password@host:port/database[?ssl-ca=FILE]; None: the environment's.

        Raises:
            SettingsInvalid: with the reason; never with the url, which holds a password.
        """
        text = url or os.environ.get(VARIABLE, "")
        if not text:
            raise _bad_url(f"no url is given and {VARIABLE} is not set")
        try:
            parts = urlsplit(text)
            port = parts.port or _DEFAULT_PORT
        except ValueError:
            raise _bad_url("host or port cannot be read") from None  # it would show the url
        database = unquote(parts.path.strip("/"))
        options = parse_qs(parts.query)
        ssl_ca = options.pop("ssl-ca", [None])[-1]
        if parts.scheme not in ("mysql", "mariadb"):
            raise _bad_url("it does not begin with mysql://")
        if not (parts.hostname and parts.username and database):
            raise _bad_url("host, user or database is missing")
        if options:
            raise _bad_url(f"option {', '.join(sorted(options))} is not known, only ssl-ca")
        user, password = unquote(parts.username), unquote(parts.password or "")
        return cls(parts.hostname, port, user, password, database, ssl_ca)


def _bad_url(reason: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"the url of MySQL cannot be used: {reason}",
        data="nothing was written",
        do=f"give url= or {VARIABLE} as mysql://user:password@host:port/database, with special "
        "characters percent-encoded",
    )


def connect(address: Address, *, timeout_s: float) -> Connection:
    """Return a session in autocommit, strict, UTC, READ COMMITTED.

    Args:
        address: where to.
        timeout_s: how long anything may take: connecting, a read or write, a lock, being idle. The
            server ends the session after that, so the locks of a vanished node end too.

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
            read_timeout=socket_s + 1,  # the server's own timeouts come first: they say why
            write_timeout=socket_s + 1,
            ssl={"ca": address.ssl_ca} if address.ssl_ca else None,
        )
    except (pymysql.err.Error, OSError, RuntimeError) as error:
        raise faults.at_login(error, str(address)) from error
    try:
        prepare(connection, timeout_s)
    except (pymysql.err.Error, OSError) as error:
        connection.close()
        raise faults.at_login(error, str(address)) from error
    return connection


def prepare(connection: Connection, timeout_s: float) -> None:
    """Make the session's settings ours."""
    idle_s = max(1, math.floor(timeout_s))
    settings = {
        "sql_mode": f"'{SQL_MODE}'",
        "time_zone": "'+00:00'",
        "wait_timeout": idle_s,
        "net_read_timeout": idle_s,
        "net_write_timeout": idle_s,
        # Two kinds of lock: rows, and the table's definition, whose default is a day or a year.
        "innodb_lock_wait_timeout": idle_s,
        "lock_wait_timeout": idle_s,
        # Off on some servers for bulk loads, which would let duplicates into a unique index.
        "unique_checks": 1,
        "foreign_key_checks": 1,
        # CHAIN or RELEASE would open a transaction, or close the session, at each COMMIT.
        "completion_type": "'NO_CHAIN'",
    }
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        cursor.execute("SET " + ", ".join(f"SESSION {k} = {v}" for k, v in settings.items()))


def quoted(name: str) -> str:
    """Return an identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"
