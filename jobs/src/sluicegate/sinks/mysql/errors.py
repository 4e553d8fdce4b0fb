"""Translates errors of MySQL and MariaDB into Sluicegate's errors, which say what they mean for the data.

Errors are distinguished by number: both servers document the numbers and never localize them. Pure.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import pymysql

from sluicegate.errors import (
    AccessDenied,
    PreflightFailed,
    SinkRejected,
    SinkUnavailable,
    SluicegateError,
    TargetMissing,
)

Fault = pymysql.err.Error | OSError
"""What the driver raises; an OSError if it cannot resolve a host or set up a socket."""

NO_SUCH_TABLE = 1146
_UNKNOWN_DATABASE = 1049

_LOGIN_REFUSED = frozenset({1045, 1130, 1251, 1524, 1698, 1820, 1862, 2026, 2059, 3118, 4151})
"""Wrong password, host not allowed, account locked or expired, no common TLS version or login plugin."""

_DENIED = frozenset({1044, 1142, 1143, 1227, 1370})
"""A privilege is missing: database, table, column, SUPER, routine."""

_TRANSIENT = frozenset({
    1020, 1021, 1030, 1037, 1038, 1040, 1041, 1042, 1043, 1053, 1077, 1078, 1079, 1080, 1114, 1129,
    1152, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1180, 1181, 1184, 1189, 1190, 1203, 1205,
    1206, 1213, 1226, 1290, 1297, 1317, 1412, 1614, 1792, 1836, 1927, 1969, 2002, 2003, 2005, 2006,
    2012, 2013, 2014, 2055, 3024, 3100, 3101, 3572, 3879, 4031,
})  # fmt: skip
"""Locks, shutdown, lost connections, read-only after a failover, full disks, changed definitions."""

_REJECTED = frozenset({
    1048, 1051, 1054, 1062, 1064, 1118, 1136, 1146, 1147, 1153, 1166, 1216, 1217, 1263, 1264, 1265,
    1292, 1294, 1305, 1356, 1364, 1365, 1366, 1367, 1369, 1390, 1406, 1411, 1441, 1442, 1449, 1451,
    1452, 1526, 1644, 1665, 1690, 1748, 1906, 3105, 3140, 3141, 3150, 3151, 3156, 3157, 3819, 4025,
})  # fmt: skip
"""The rows or the statement do not fit the table in its present state."""

_ADVICE: Mapping[int, str] = {
    1049: "create the database, or correct its name in the url",
    1054: "restore the column, or rename it in the job before a new lineage",
    1062: "remove the existing rows: on_conflict='error' will always refuse them",
    1146: "create the table again, or restore it with its markers",
    1153: "raise max_allowed_packet on the server to its value at the job's start, or more",
    1205: "find the session that holds the lock: SHOW ENGINE INNODB STATUS",
    1213: "nothing if it is rare; otherwise keep other writers off the table, or set parts=1",
    1264: "widen the column; with on_conflict='add' the sum may have outgrown it",
    1406: "widen the column with ALTER TABLE; the epoch is then applied as it was decided",
    1690: "widen the column; with on_conflict='add' the sum has outgrown it",
    1290: "nothing during a failover; otherwise point the url to a writable server",
    1665: "set binlog_format to ROW or MIXED",
}
_NO_TLS = 2026
"""PyMySQL's, of a server that offers no TLS where it is required."""

_WAIT = "nothing if it passes: the apply is repeated; otherwise check the server's error log"
_FIX = "change the table so that it accepts the rows; the epoch is then applied as decided"
_GRANT = "grant SELECT, INSERT and UPDATE on the table and on sluicegate_markers, and CREATE once"


def code_of(error: BaseException) -> int:
    """Return the number of an error, 0 if it has none."""
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def describe(error: BaseException) -> str:
    """Return the message of the server or the driver, with its number."""
    code, text = code_of(error), str(error.args[1] if len(error.args) > 1 else error)
    text = text or "the connection is closed"
    return f"{text} ({code})" if code else text


def is_permanent(error: Fault) -> bool:
    """Return whether the server refused rows or a statement, so that a retry cannot help."""
    code = code_of(error)
    if code in _REJECTED or code in _DENIED or code == _UNKNOWN_DATABASE:
        return True
    if code in _TRANSIENT:
        return False
    kinds = (
        pymysql.err.DataError,
        pymysql.err.IntegrityError,
        pymysql.err.ProgrammingError,
        pymysql.err.NotSupportedError,
    )
    return isinstance(error, kinds)


def login_error(error: Fault | RuntimeError, server: str) -> SluicegateError:
    """Return the error of a failed connection; `server` must not contain a password."""
    what = f"{server}: cannot connect: {describe(error)}"
    data = "nothing was written"
    code = code_of(error)
    if code == _NO_TLS:
        do = "enable TLS on the server: the url or SLUICEGATE_MYSQL_TLS requires it"
        return AccessDenied(what, data=data, do=do)
    if code in _LOGIN_REFUSED or code in _DENIED or isinstance(error, RuntimeError):
        # The driver raises RuntimeError if a login method needs a package that is not installed.
        do = "correct user, password and privileges, in the url or on the server"
        return AccessDenied(what, data=data, do=do)
    if code == _UNKNOWN_DATABASE:
        return TargetMissing(what, data=data, do=_ADVICE[_UNKNOWN_DATABASE])
    do = "start the server, or correct host and port in the url (SLUICEGATE_MYSQL)"
    if isinstance(getattr(error, "original_exception", None), ssl.SSLError):
        do = "give the server a certificate for its host name, and name its authority by ssl-ca in the url"
    return SinkUnavailable(what, data=data, do=do)


def preflight_error(error: Fault, where: str, doing: str) -> SluicegateError:
    """Return the error of a statement of the preflight."""
    what = f"{where}: {doing}: {describe(error)}"
    data = "nothing was written; the job has not started"
    if code_of(error) in _DENIED:
        return AccessDenied(what, data=data, do=_GRANT)
    if is_permanent(error):
        do = _ADVICE.get(code_of(error), "correct the table or the sink's settings")
        missing = code_of(error) in (NO_SUCH_TABLE, _UNKNOWN_DATABASE)
        return (TargetMissing if missing else PreflightFailed)(what, data=data, do=do)
    return SinkUnavailable(what, data=data, do=_ADVICE.get(code_of(error), _WAIT))


def apply_error(
    error: Fault, where: str, doing: str, *, committing: bool = False
) -> SluicegateError:
    """Return the error of a statement of an apply, after everything was rolled back.

    Args:
        error: raised by the driver.
        where: sink, part and table.
        doing: the step that failed, such as 'writing rows'.
        committing: COMMIT was sent, so a lost connection leaves the outcome in doubt.
    """
    what = f"{where}: {doing}: {describe(error)}"
    code = code_of(error)
    if is_permanent(error):
        data = "all of this part was rolled back; the epoch stays decided, nothing is lost"
        do = _GRANT if code in _DENIED else _ADVICE.get(code, _FIX)
        return SinkRejected(what, data=data, do=do)
    data = "all of this part was rolled back; the next attempt reads the marker first"
    if committing:
        data = "the part is committed as a whole or not at all; the next attempt reads the marker"
    return SinkUnavailable(what, data=data, do=_ADVICE.get(code, _WAIT))
