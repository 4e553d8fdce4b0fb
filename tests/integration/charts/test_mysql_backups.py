"""The backups of the chart mysql: their store, and what their Jobs may read."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.local_services.s3 import S3Endpoint
from infra.workspace import CHECKOUT
from sluicegate.storage.object_store import open_store
from tests.integration.charts.rendering import Charts, only_of_kind

SCRIPT = CHECKOUT / "charts/mysql/files/backups.py"
DUMP = "-- Server version\t9.7.4\n{}\n-- Dump completed on 2026-11-23  6:24:11\n"


class Backups:
    """Backups at an address, and a dump."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.dump, self.fetched = url, folder / "dump.sql.gz", folder / "fetched.sql.gz"

    def run(self, verb: str, file: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(SCRIPT), verb, str(file)],
            env=os.environ | {"BACKUP_URL": self.url, "BACKUP_KEEP": "2"} | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def store(self, text: str) -> str:
        """Store a dump under the second after the newest backup; return its name."""
        self.dump.write_bytes(gzip.compress(DUMP.format(text).encode()))
        done = self.run("store", self.dump)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[2].rstrip(":")

    def names(self) -> list[str]:
        return sorted(open_store(self.url).names(""))


@pytest.fixture(params=["folder", "bucket"])
def backups(request: pytest.FixtureRequest, tmp_path: Path) -> Backups:
    if request.param == "folder":
        return Backups(str(tmp_path / "backups"), tmp_path)
    bucket: S3Endpoint = request.getfixturevalue("bucket")
    return Backups(f"{bucket.url}/{tmp_path.name}", tmp_path)


def test_the_newest_backups_are_kept_and_nothing_else_is_removed(backups: Backups) -> None:
    archive = open_store(backups.url)
    for name in ("20200101T000000Z", "20210101T000000Z"):
        archive.put(f"{name}/dump.sql.gz", [b"old"])
        archive.put(f"{name}/manifest.json", [b"{}"])
    archive.put("20220101T000000Z/dump.sql.gz", [b"an upload that was killed"])
    archive.put("theirs/dump.sql.gz", [b"not a backup"])
    new = backups.store("CREATE TABLE a")
    kept = [
        f"{name}/{file}"
        for name in ("20210101T000000Z", new)
        for file in ("dump.sql.gz", "manifest.json")
    ]
    assert backups.names() == sorted([*kept, "theirs/dump.sql.gz"])


def test_the_latest_complete_backup_is_fetched(backups: Backups) -> None:
    backups.store("CREATE TABLE a")
    open_store(backups.url).put("29990101T000000Z/dump.sql.gz", [b"an upload that was killed"])
    assert backups.run("fetch", backups.fetched).returncode == 0
    assert backups.fetched.read_bytes() == backups.dump.read_bytes()


def test_a_dump_that_changed_in_the_store_is_not_restored(backups: Backups) -> None:
    name = backups.store("CREATE TABLE a")
    open_store(backups.url).put(f"{name}/dump.sql.gz", [backups.dump.read_bytes()[:-1]])
    refused = backups.run("fetch", backups.fetched)
    assert refused.returncode == 1
    assert "is not what was stored" in refused.stderr
    assert not backups.fetched.exists()


@pytest.mark.parametrize("cut", ["the file", "the text"])
def test_a_dump_that_was_cut_off_is_not_stored(tmp_path: Path, cut: str) -> None:
    backups = Backups(str(tmp_path / "backups"), tmp_path)
    whole = gzip.compress(DUMP.format("x" * 1000).encode())
    text = gzip.compress(b"-- Server version\t9.7.4\nCREATE TABLE a (")
    backups.dump.write_bytes(whole[:-12] if cut == "the file" else text)
    refused = backups.run("store", backups.dump)
    assert refused.returncode == 1
    assert "is not a complete dump" in refused.stderr
    assert backups.names() == []


@pytest.mark.usefixtures("bucket")
def test_a_missing_bucket_fails_the_job_with_the_reason(tmp_path: Path) -> None:
    backups = Backups("s3://never-created/mysql", tmp_path)
    backups.dump.write_bytes(gzip.compress(DUMP.format("").encode()))
    failed = backups.run("store", backups.dump)
    assert failed.returncode == 1
    assert "NoSuchBucket" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_each_pod_has_the_password_of_its_own_account_only(charts: Charts) -> None:
    """The nightly pod reads everything and changes nothing."""
    documents = charts.render("mysql", {"backup.enabled": True, "backup.existingClaim": "backups"})
    for verb in ("backup", "restore"):
        job = only_of_kind(documents, "CronJob", f"sluicegate-mysql-{verb}")["spec"]
        assert job.get("suspend", False) == (verb == "restore")
        volumes = job["jobTemplate"]["spec"]["template"]["spec"]["volumes"]
        (passwords,) = (v["secret"] for v in volumes if v["name"] == "passwords")
        assert [item["key"] for item in passwords["items"]] == [f"{verb}-password"]
