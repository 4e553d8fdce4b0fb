"""The server of the image mysql, in a root file system of its own on this machine's network."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pymysql
import pytest

from infra.images import build
from infra.images.catalog import IMAGES, Image
from infra.images.contents import Files
from infra.local_services.endpoints import MySQLEndpoint
from infra.local_services.process import Server, accepts, free_ports
from tests.integration.images import archives

DATABASE = "shop_a"
"""With a character that matches any other in a GRANT."""

_USER = "10001:10001"
_CONFIG = {
    "bind-address": "127.0.0.1",
    "socket": "/tmp/mysql.sock",
    "pid-file": "/tmp/mysqld.pid",
    "tmpdir": "/tmp",
    "mysqlx": "OFF",
    "secure_file_priv": "NULL",
    "skip-name-resolve": "ON",
    "sync_binlog": "1",
    "log_bin": "binlog",
    "innodb_buffer_pool_size": "64M",
    "performance_schema": "OFF",
}


class MySQLImage(Server):
    """MySQL as a container of the image starts it, with accounts for jobs, backups and restores."""

    NAME = "MySQL of the image"
    LOG = "mysql.log"
    START_TIMEOUT_S = 90.0

    def __init__(self, folder: Path, root: Path) -> None:
        super().__init__(folder)
        self.root = root
        (self.port,) = free_ports(1)
        jobs, self._backup, self._restore, self._administrator, metrics = self._stored_secrets(
            "passwords", 16, 16, 16, 16, 16
        )
        self.endpoint = MySQLEndpoint("127.0.0.1", self.port, "sluicegate", jobs, DATABASE)
        self.restorer = MySQLEndpoint(
            "127.0.0.1", self.port, "sluicegate-restore", self._restore, "mysql"
        )
        self.metrics_reader = MySQLEndpoint(
            "127.0.0.1", self.port, "sluicegate-metrics", metrics, "information_schema"
        )

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.root / "var/lib/mysql/data"

    @property
    def upgrade_history(self) -> Path:
        """The file in which the server notes the versions that its data had."""
        return self.data / "mysql_upgrade_history"

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the image with the login that it needs."""
        password = self.root / "tmp" / f"{script}-password"
        password.write_text(self._backup if script == "mysql-backup" else self._restore)
        variables = {
            "MYSQL_HOST": "127.0.0.1",
            "MYSQL_PORT": str(self.port),
            "MYSQL_PASSWORD_FILE": f"/tmp/{script}-password",
            **environment,
        }
        return subprocess.run(
            [*self.inside(variables), f"/opt/sluicegate/{script}"],
            capture_output=True,
            text=True,
            check=False,
        )

    def bash(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, with a login of root in /tmp/root.cnf."""
        login = self.root / "tmp/root.cnf"
        password = (
            f'[client]\nuser=root\nsocket=/tmp/mysql.sock\npassword="{self._administrator}"\n'
        )
        login.write_text(password)
        return subprocess.run(
            [*self.inside({}), "bash", "-o", "pipefail", "-c", command],
            capture_output=True,
            text=True,
            check=False,
        )

    def fail_to_start(self) -> str:
        """Run the entry point, which must end by itself; return what it says."""
        done = subprocess.run(
            self._prepare(), capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 64
        return done.stderr

    def _prepare(self) -> list[str]:
        config = "".join(f"{name}={value}\n" for name, value in _CONFIG.items())
        path = self.root / "etc/mysql/my.cnf"
        # it is a link to an absolute path, which outside of the root would be a file of this machine
        path.unlink(missing_ok=True)
        path.write_text(f"[mysqld]\nport={self.port}\n{config}")
        variables = {
            "MYSQL_ROOT_PASSWORD": self._administrator,
            "MYSQL_DATABASE": DATABASE,
            "MYSQL_USER": self.endpoint.user,
            "MYSQL_PASSWORD": self.endpoint.password,
            "MYSQL_BACKUP_PASSWORD": self._backup,
            "MYSQL_RESTORE_PASSWORD": self._restore,
            "MYSQL_METRICS_PASSWORD": self.metrics_reader.password,
        }
        return [*self.inside(variables), "/opt/sluicegate/mysql-server"]

    def inside(self, variables: Mapping[str, str]) -> list[str]:
        """Return the command that runs another one as a container of the image does."""
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        pairs = [f"{name}={value}" for name, value in variables.items()]
        return ["chroot", f"--userspec={_USER}", str(self.root), "env", "-i", path, *pairs]

    def _ready(self) -> bool:
        if not accepts(self.port):
            return False
        try:
            with self.endpoint.connect() as connection:
                connection.ping()
        except pymysql.OperationalError:
            return False  # it initializes its data folder; the caller has a deadline
        return True


def unpack_or_skip(folder: Path) -> Path:
    """Write the files of the image to a folder; skips the test without the image or without root."""
    image: Image = IMAGES["mysql"]
    found = build.built(image)
    if found is None:
        pytest.skip("sluicegate/mysql is not built from this checkout: run `make images`")
    if os.geteuid() != 0:
        pytest.skip("only root can change its root file system")
    _, files = archives.read(found.archive)
    folder.chmod(0o755)
    _write(files, folder)
    os.mknod(folder / "dev/null", 0o020666, os.makedev(1, 3))
    (folder / "dev/null").chmod(0o666)
    (folder / "tmp").chmod(0o1777)
    for data in ("var/lib/mysql", "backup"):
        (folder / data).mkdir(exist_ok=True)
        shutil.chown(folder / data, 10001, 10001)
    return folder


def _write(files: Files, folder: Path) -> None:
    for path, entry in sorted(files.items()):
        target = folder / path
        # a link of the image may point out of the folder, so none is followed
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.target:
            target.symlink_to(entry.target)
        elif entry.content is None:
            target.mkdir(exist_ok=True)
            target.chmod(entry.mode)
        else:
            with entry.content.open() as source, target.open("wb") as sink:
                sink.write(source.read(entry.content.length))
            target.chmod(entry.mode)
