"""The object store with TLS and the settings of its chart.

The image is not used: the server of this machine runs, with other folders, hosts and ports.
"""

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import urllib3
from minio import Minio
from minio.error import S3Error

from infra.local_services.process import Server, accepts, free_ports
from infra.toolchain import go_programs
from tests.integration.charts.chart_kafka import data_of
from tests.integration.charts.rendering import Charts, Document, of_kind, only_of_kind


class ChartStore(Server):
    """The store of a rendered chart: its arguments, init container and Job, in other folders."""

    NAME = "the chart's store"
    LOG = "store.log"
    START_TIMEOUT_S = 30.0

    def __init__(self, folder: Path, documents: list[Document]) -> None:
        super().__init__(folder)
        self.documents = documents
        (self.port,) = free_ports(1)
        # as the kubelet creates the folders of subPath and of volumes
        for name in ("objects", "metadata", "tls", "iam", "access", "keys"):
            (folder / name).mkdir()
        for name, text in data_of(documents, "sluicegate-object-store-tls").items():
            (folder / "tls" / name).write_text(text)
        script = only_of_kind(documents, "ConfigMap", "sluicegate-object-store-access")["data"]
        (folder / "access" / "access.py").write_text(script["access.py"])
        for volume in self.pod()["volumes"]:
            for source in volume.get("projected", {}).get("sources", ()):
                keys = data_of(documents, source["secret"]["name"])
                for item in source["secret"]["items"]:
                    file = folder / "keys" / item["path"]
                    file.parent.mkdir(exist_ok=True)
                    file.write_text(keys[item["key"]])

    def _environment(self) -> Mapping[str, str]:
        (container,) = self.pod()["containers"]
        return self._variables(container)

    def _variables(self, container: Document) -> Mapping[str, str]:
        """Return a container's environment, with values of Secrets."""
        variables = {}
        for variable in container["env"]:
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            keys = data_of(self.documents, reference["name"]) if reference else {}
            text = keys[reference["key"]] if reference else variable["value"]
            variables[variable["name"]] = self._moved(text)
        return os.environ | variables

    def _moved(self, text: str) -> str:
        text = text.replace("/var/lib/store", str(self._folder))
        text = text.replace("/etc/store", str(self._folder))
        return text.replace("https://sluicegate-object-store:7070", self.url)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def pod(self) -> Document:
        """Return the pod of the server."""
        spec: Document = only_of_kind(self.documents, "StatefulSet")["spec"]["template"]["spec"]
        return spec

    def _prepare(self) -> list[str]:
        (users,) = self.pod()["initContainers"]
        assert self.run_container(users).returncode == 0
        (container,) = self.pod()["containers"]
        text = self._moved("\n".join(container["args"])).replace(":7070", f"127.0.0.1:{self.port}")
        return [str(go_programs.VERSITYGW.build()), *text.split("\n")]

    def _ready(self) -> bool:
        return accepts(self.port)

    def run_container(self, container: Document) -> subprocess.CompletedProcess[str]:
        """Run a container that has Python, as its pod would."""
        command: list[str] = [*container["command"], *container.get("args", ())]
        return subprocess.run(
            [sys.executable, *map(self._moved, command[1:])],
            env=self._variables(container),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def user(self, name: str) -> Minio:
        """Return a client with the keys in the Secret of a user."""
        keys = data_of(self.documents, f"sluicegate-object-store-user-{name}")
        trust = urllib3.PoolManager(ca_certs=str(self._folder / "tls" / "ca.crt"))
        login = (keys["accessKeyId"], keys["secretAccessKey"])
        return Minio(self.url[8:], *login, region="us-east-1", http_client=trust)


@pytest.fixture
def store(charts: Charts, tmp_path: Path) -> Iterator[ChartStore]:
    if reason := go_programs.VERSITYGW.missing_reason():
        pytest.skip(reason)
    users = [
        {"name": "shop", "bucket": "shared", "prefix": "shop"},
        {"name": "bank", "bucket": "shared", "prefix": "bank"},
    ]
    values = {"tls": {"enabled": True}, "users": users}
    server = ChartStore(tmp_path, charts.render("object-store", values))
    server.start()
    yield server
    server.stop()


@pytest.mark.integration
def test_the_store_with_tls_and_the_charts_settings_accepts_signed_requests(
    store: ChartStore,
) -> None:
    (pod,) = of_kind(store.documents, "Pod")
    (container,) = pod["spec"]["containers"]
    result = store.run_container(container)
    assert result.returncode == 0, result.stderr
    assert "returns what was put" in result.stdout


@pytest.mark.integration
def test_the_chart_gives_each_user_its_prefix(store: ChartStore) -> None:
    (job,) = of_kind(store.documents, "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    result = store.run_container(container)
    assert result.returncode == 0, result.stderr
    for name, other in (("shop", "bank"), ("bank", "shop")):
        store.user(name).put_object("shared", f"{name}/1", io.BytesIO(b"1"), 1)
        with pytest.raises(S3Error, match="AccessDenied"):
            store.user(name).put_object("shared", f"{other}/1", io.BytesIO(b"1"), 1)


@pytest.mark.integration
def test_two_users_with_one_key_stop_the_store_with_the_remedy(
    store: ChartStore, tmp_path: Path
) -> None:
    (users,) = store.pod()["initContainers"]
    shutil.copy(tmp_path / "keys/shop/accessKeyId", tmp_path / "keys/bank/accessKeyId")
    result = store.run_container(users)
    assert result.returncode == 1
    assert "Give each user an accessKeyId of its own" in result.stderr
