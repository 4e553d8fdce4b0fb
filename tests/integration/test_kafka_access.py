"""Every client of a job logs in with the file of SLUICEGATE_KAFKA_CONFIG: TLS and SCRAM on a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.toolchain.maven import folder as jars_folder
from sluicegate.errors import AccessDenied
from tests.integration.secure_kafka import SecureKafka

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

RECORDS = 300


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Start a broker for this module."""
    broker = SecureKafka(tmp_path_factory.mktemp("secure") / "kafka")
    broker.start()
    yield broker
    broker.stop()


def run_sluicegate(
    *arguments: str, kafka: SecureKafka, config: Path
) -> subprocess.CompletedProcess[str]:
    """Run a command as a user who knows only the broker's secure address."""
    environment = {
        "SLUICEGATE_KAFKA": kafka.servers,
        "SLUICEGATE_KAFKA_CONFIG": str(config),
        "SLUICEGATE_JARS": str(jars_folder("spark")),
    }
    return subprocess.run(
        [sys.executable, "-m", "sluicegate.cli", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_job_is_exact_through_tls_and_scram(kafka: SecureKafka, tmp_path: Path) -> None:
    """Targets, generator, Spark's source, sink, markers and verification all log in."""
    config = kafka.properties(tmp_path / "kafka.properties")
    checkpoint = ["--checkpoint", str(tmp_path / "checkpoint")]
    for arguments in (
        ["targets", "kafka_to_kafka"],
        ["generate", "kafka_to_kafka", "--records", str(RECORDS)],
        ["run", "kafka_to_kafka", "--interval", "available-now", "--once", *checkpoint],
    ):
        result = run_sluicegate(*arguments, kafka=kafka, config=config)
        assert result.returncode == 0, (arguments, result.stdout, result.stderr)
    result = run_sluicegate("verify", "kafka_to_kafka", *checkpoint, kafka=kafka, config=config)
    assert result.returncode == 0, (result.stdout, result.stderr)
    assert "EXACT" in result.stdout.upper()


def test_a_wrong_password_is_reported_at_the_start(kafka: SecureKafka, tmp_path: Path) -> None:
    config = kafka.properties(tmp_path / "kafka.properties", password="wrong")
    result = run_sluicegate("targets", "kafka_to_kafka", kafka=kafka, config=config)
    assert result.returncode == AccessDenied.exit_code, (result.stdout, result.stderr)
    assert "AccessDenied" in result.stderr
    assert "wrong" not in result.stdout + result.stderr.replace("wrong password", "")
