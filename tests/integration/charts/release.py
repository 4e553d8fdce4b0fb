"""A release on a real API server, without a kubelet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from infra.chart_docs import helm
from tests.integration.charts.hook_jobs import run_hook_jobs, secrets_in
from tests.integration.charts.rendering import Charts, Document
from tests.integration.operator.api import Api
from tests.integration.operator.rest_client import Object

CRDS_OFF: dict[str, Any] = {"operator": {"crds": {"install": False}}}


class Release:
    """A release named after its namespace."""

    def __init__(self, charts: Charts, api: Api) -> None:
        self.api, self.charts, self.namespace = api, charts, api.namespace()
        self.config = api.server.kubeconfig()

    def upgrade(
        self, chart: str, values: dict[str, Any] | None = None, file: Path | None = None
    ) -> None:
        """Install or upgrade."""
        run_hook_jobs(self.api, self.render(chart, values, file))
        arguments = self.charts.arguments(chart, values, file)
        options = ["--namespace", self.namespace, "--install", "--no-hooks"]
        helm.run(["upgrade", self.namespace, *arguments, *options], kubeconfig=self.config)

    def render(
        self, chart: str, values: dict[str, Any] | None = None, file: Path | None = None
    ) -> list[Document]:
        name = self.namespace
        return self.charts.render(chart, values, file=file, release=name, namespace=name)

    def uninstall(self) -> None:
        options = ["--namespace", self.namespace, "--no-hooks"]
        helm.run(["uninstall", self.namespace, *options], kubeconfig=self.config)

    def get(self, plural: str, name: str, api: str = "/api/v1") -> Object:
        return self.api.request("GET", f"{api}/namespaces/{self.namespace}/{plural}/{name}")

    def secret(self, suffix: str) -> dict[str, str]:
        return secrets_in(self.api, self.namespace)[f"{self.namespace}-{suffix}"]

    def names(self, plural: str, api: str = "/api/v1") -> set[str]:
        listed = self.api.request("GET", f"{api}/namespaces/{self.namespace}/{plural}")
        return {item["metadata"]["name"] for item in listed["items"]}
