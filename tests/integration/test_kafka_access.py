"""Every client of a job gets in by the file of SLUICEGATE_KAFKA_CONFIG: TLS and SCRAM, on a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.jars import folder as jars_folder
from sluicegate.protocol.errors import AccessDenied

from .secure_kafka import SecureKafka

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

RECORDS = 300


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Give a broker of this module's own."""
    broker = SecureKafka(tmp_path_factory.mktemp("secure") / "kafka")
    broker.start()
    yield broker
    broker.stop()


def sluicegate(*words: str, kafka: SecureKafka, config: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does who knows the broker's secure address only."""
    told = {
        "SLUICEGATE_KAFKA": kafka.servers,
        "SLUICEGATE_KAFKA_CONFIG": str(config),
        "SLUICEGATE_JARS": str(jars_folder("spark")),
    }
    return subprocess.run(
        [sys.executable, "-m", "sluicegate.cli", *words],
        env=os.environ | told,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_job_from_kafka_to_kafka_through_tls_and_scram(
    kafka: SecureKafka, tmp_path: Path
) -> None:
    """Targets, generator, Spark's source, sink, markers, verification and tail: all get in."""
    config = kafka.properties(tmp_path / "kafka.properties")
    checkpoint = ["--checkpoint", str(tmp_path / "checkpoint")]
    for words in (
        ["targets", "kafka_to_kafka"],
        ["generate", "kafka_to_kafka", "--records", str(RECORDS)],
        ["run", "kafka_to_kafka", "--interval", "available-now", "--once", *checkpoint],
    ):
        done = sluicegate(*words, kafka=kafka, config=config)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    said = sluicegate("verify", "kafka_to_kafka", *checkpoint, kafka=kafka, config=config)
    assert said.returncode == 0, (said.stdout, said.stderr)
    assert "EXACT" in said.stdout.upper()


def test_a_wrong_password_is_said_at_the_start(kafka: SecureKafka, tmp_path: Path) -> None:
    config = kafka.properties(tmp_path / "kafka.properties", password="wrong")
    done = sluicegate("targets", "kafka_to_kafka", kafka=kafka, config=config)
    assert done.returncode == AccessDenied.exit_code, (done.stdout, done.stderr)
    assert "AccessDenied" in done.stderr
    assert "wrong" not in done.stdout + done.stderr.replace("wrong password", "")
