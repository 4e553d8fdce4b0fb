"""A checkpoint on a store whose certificate is signed by a private CA: accepted only if the CA is trusted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local_services import Services
from infra.local_services.s3 import S3Server
from sluicegate.storage.s3_config import bucket_of
from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.locations import environment
from sluicegate_operator.reconcile.storage_tasks import CheckVolume, Task, VolumeChecked
from sluicegate_operator.storage_tasks.runner import AUTHORITY_TEXT, TaskFailed, run
from tests.certificates import write_certificate
from tests.robustness.traffic.ip_count_harness import CLUSTER, new_scenario

pytestmark = pytest.mark.integration


@pytest.fixture
def certificate_folder(tmp_path: Path) -> Path:
    return write_certificate(tmp_path / "tls", "store")


@pytest.fixture
def store(tmp_path: Path, certificate_folder: Path) -> Iterator[S3Server]:
    server = S3Server(tmp_path / "store", certificate_folder)
    server.start()
    yield server
    server.stop()


@pytest.mark.slow
def test_driver_and_executors_trust_the_ca_of_ssl_cert_file_in_python_and_java(
    services: Services, store: S3Server, certificate_folder: Path, tmp_path: Path
) -> None:
    """Spark's logs (Java), executors' state (Java) and staged rows (Python) are all on that store."""
    store_environment = {
        **store.endpoint.environment(),
        "SSL_CERT_FILE": str(certificate_folder / "ca.crt"),
    }
    checkpoint = f"{store.endpoint.url}/job"
    scenario = new_scenario(services, tmp_path, checkpoint=checkpoint, max_records=600)
    result = scenario.run(env={**store_environment, **CLUSTER})
    assert result.code == 0, result.log
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store_environment.items():
            patch.setenv(name, value)
        scenario.check_exact(late=0)  # two epochs have read all


def check_volume(store: S3Server, authority: str) -> object:
    spec = CheckpointVolumeSpec(
        bucket=bucket_of(store.endpoint.url), endpoint=store.endpoint.endpoint
    )
    keys = environment(spec, store.endpoint.access_key, store.endpoint.secret_key)
    task: Task = CheckVolume(
        f"{store.endpoint.url}/volume", make_bucket=False, region=spec.region, access="tls"
    )
    return asyncio.run(run(task, {**keys, AUTHORITY_TEXT: authority}, 60.0))


def test_the_operator_trusts_the_ca_of_a_volume(store: S3Server, certificate_folder: Path) -> None:
    assert isinstance(
        check_volume(store, (certificate_folder / "ca.crt").read_text()), VolumeChecked
    )


def test_a_store_with_another_ca_is_not_trusted(store: S3Server, tmp_path: Path) -> None:
    other = write_certificate(tmp_path / "other", "another")
    with pytest.raises(TaskFailed) as error_info:
        check_volume(store, (other / "ca.crt").read_text())
    for text in ("certificate", "unable to get local issuer", "SSL_CERT_FILE"):
        assert text in str(error_info.value)
