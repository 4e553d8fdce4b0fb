"""What infra.local_services says when it cannot start a server, and how it names one."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from infra.local_services import MySQLEndpoint, ServiceError, mariadb
from infra.local_services.__main__ import write_variables
from infra.local_services.kube_apiserver import ADMIN, ApiServer
from infra.local_services.process import Server, free_ports


class FakeServer(Server):
    """A command that is ready or never ready."""

    NAME = "The server"
    LOG = "log"

    def __init__(self, folder: Path, *command: str, ready: bool = False, timeout_s: float) -> None:
        super().__init__(folder)
        self.command, self.ready = list(command), ready
        self.START_TIMEOUT_S = timeout_s  # type: ignore[misc]

    def _prepare(self) -> list[str]:
        return self.command

    def _ready(self) -> bool:
        return self.ready


def fake_ldd(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    ldd = folder / "ldd"
    ldd.write_text(f"#!/bin/sh\nprintf '{answer}'\n", encoding="utf-8")
    ldd.chmod(0o755)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("shutil.which", lambda _name: str(ldd))


def test_all_missing_libraries_are_named_at_once_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = "\\tlibaio.so.1 => not found\\n\\tlibc.so.6 => /lib/libc.so.6\\n"
    fake_ldd(tmp_path, monkeypatch, answer + "\\tlibodd.so.3 => not found\\n")
    with pytest.raises(ServiceError, match=r"libaio\.so\.1, libodd\.so\.3.*install libaio1"):
        mariadb.require_libraries(tmp_path / "mariadbd")


def test_a_system_with_all_libraries_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ldd(tmp_path, monkeypatch, "\\tlibc.so.6 => /lib/libc.so.6\\n")
    mariadb.require_libraries(tmp_path / "mariadbd")


def test_a_platform_without_mariadb_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(ServiceError, match="SLUICEGATE_MYSQL"):
        mariadb.unpack()


def test_a_server_that_dies_while_starting_is_reported_with_its_log(tmp_path: Path) -> None:
    code = "import sys; print('disk is full'); sys.exit(3)"
    server = FakeServer(tmp_path, sys.executable, "-c", code, timeout_s=30.0)
    with pytest.raises(ServiceError, match=r"(?s)code 3 while starting.*disk is full"):
        server.start()
    assert server.pid is None


def test_a_server_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    before = psutil.Process().children()
    code = "import time; time.sleep(600)"
    server = FakeServer(tmp_path, sys.executable, "-c", code, timeout_s=0.2)
    with pytest.raises(ServiceError, match="not ready after"):
        server.start()
    assert server.pid is None
    assert psutil.Process().children() == before


class StartingApiServer(ApiServer):
    """It has created its certificate file, and not written it yet."""

    START_TIMEOUT_S = 0.2

    def _prepare(self) -> list[str]:
        self.certificate.parent.mkdir()
        self.certificate.touch()
        return ["sleep", "60"]


def test_an_api_server_whose_certificate_is_not_written_yet_is_waited_for(tmp_path: Path) -> None:
    server = StartingApiServer(tmp_path, "http://127.0.0.1:1", {ADMIN: ()})
    with pytest.raises(ServiceError, match=r"was not ready after 0 s"):
        server.start()


def test_a_command_that_does_not_exist_leaves_no_watchdog(tmp_path: Path) -> None:
    before = psutil.Process().children()
    server = FakeServer(tmp_path, str(tmp_path / "none"), ready=True, timeout_s=1.0)
    with pytest.raises(ServiceError, match="could not be run"):
        server.start()
    assert psutil.Process().children() == before


def test_free_ports_stay_below_the_ephemeral_range() -> None:
    ports = free_ports(3)
    assert len(set(ports)) == 3
    assert max(ports) < 32_768


def test_a_mysql_url_reads_back_what_it_writes() -> None:
    endpoint = MySQLEndpoint("db.example", 3307, "us:er", "p@ss/word", "orders")
    assert MySQLEndpoint.parse(endpoint.url) == endpoint


def test_an_endpoint_shows_no_password() -> None:
    assert "secret" not in repr(MySQLEndpoint("db", 3306, "user", "secret", "orders"))


def test_a_bad_url_is_refused_without_repeating_its_password() -> None:
    with pytest.raises(ServiceError, match="mysql://user:password") as caught:
        MySQLEndpoint.parse("mysql://root:secret@db:3306")
    assert "secret" not in str(caught.value)


def test_passwords_are_in_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    file = tmp_path / "services.env"
    file.write_text("an earlier run's, for everybody")
    file.chmod(0o644)
    write_variables(file, {"SLUICEGATE_MYSQL": "mysql://u:p w@h:1/d"})
    assert file.stat().st_mode & 0o777 == 0o600
    done = subprocess.run(
        ["/bin/sh", "-c", f'. {file}; printf %s "$SLUICEGATE_MYSQL"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "mysql://u:p w@h:1/d"
