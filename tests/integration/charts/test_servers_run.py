"""The object store with TLS and the settings of its chart.

The image is not used: the server of this machine runs, with other folders, hosts and ports.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.local_services.process import Server, accepts, free_ports
from infra.toolchain import go_programs
from tests.integration.charts.chart_kafka import data_of
from tests.integration.charts.rendering import Charts, Document, of_kind, only_of_kind


class ChartStore(Server):
    """The store of a rendered chart, started with the chart's arguments."""

    NAME = "the chart's store"
    LOG = "store.log"
    START_TIMEOUT_S = 30.0

    def __init__(self, folder: Path, documents: list[Document]) -> None:
        super().__init__(folder)
        self.documents = documents
        (self.port,) = free_ports(1)
        # as the kubelet creates the folders of subPath
        for name in ("objects", "metadata", "tls"):
            (folder / name).mkdir()
        for name, text in data_of(documents, "sluicegate-object-store-tls").items():
            (folder / "tls" / name).write_text(text)

    def _environment(self) -> Mapping[str, str]:
        keys = data_of(self.documents, "sluicegate-object-store")
        (container,) = self._pod()["containers"]
        variables = {
            variable["name"]: keys[variable["valueFrom"]["secretKeyRef"]["key"]]
            for variable in container["env"]
        }
        return os.environ | variables

    def _pod(self) -> Document:
        spec: Document = only_of_kind(self.documents, "StatefulSet")["spec"]["template"]["spec"]
        return spec

    def _prepare(self) -> list[str]:
        (container,) = self._pod()["containers"]
        text = "\n".join(container["args"]).replace(":7070", f"127.0.0.1:{self.port}")
        text = text.replace("/var/lib/store", str(self._folder))
        text = text.replace("/etc/store", str(self._folder))
        return [str(go_programs.VERSITYGW.build()), *text.split("\n")]

    def _ready(self) -> bool:
        return accepts(self.port)

    def run_helm_test(self) -> subprocess.CompletedProcess[str]:
        """Run the command of the pod of `helm test`."""
        (pod,) = of_kind(self.documents, "Pod")
        (container,) = pod["spec"]["containers"]
        keys = data_of(self.documents, "sluicegate-object-store")
        variables = {
            "ENDPOINT": f"https://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": keys["accessKeyId"],
            "AWS_SECRET_ACCESS_KEY": keys["secretAccessKey"],
            "SSL_CERT_FILE": str(self._folder / "tls" / "ca.crt"),
        }
        assert variables.keys() == {variable["name"] for variable in container["env"]}
        return subprocess.run(
            [sys.executable, "-c", *container["args"]],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.mark.integration
def test_the_store_with_tls_and_the_charts_settings_accepts_signed_requests(
    charts: Charts, tmp_path: Path
) -> None:
    if reason := go_programs.VERSITYGW.missing_reason():
        pytest.skip(reason)
    server = ChartStore(tmp_path, charts.render("object-store", {"tls": {"enabled": True}}))
    server.start()
    start = time.monotonic()
    try:
        result = server.run_helm_test()
    finally:
        server.stop()
    assert result.returncode == 0, result.stderr
    assert "returns what was put" in result.stdout
    assert time.monotonic() - start < 60
