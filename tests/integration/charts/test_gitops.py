"""What GitOps tools need: a rendering depends on the values alone."""

import pytest

from infra.chart_docs import helm
from tests.integration.charts.rendering import VALUES, Charts, only_of_kind
from tests.integration.charts.test_accepted import COMBINED

FORBIDDEN = (
    "lookup ",
    "rand",
    "genCA",
    "genPrivateKey",
    "genSelfSigned",
    "genSigned",
    "now ",
    "uuidv4",
)


@pytest.mark.parametrize("values", VALUES)
def test_two_renderings_of_the_platform_are_identical(charts: Charts, values: str) -> None:
    arguments = ["template", "a", *charts.arguments("sluicegate", file=VALUES[values])]
    assert helm.run(arguments) == helm.run(arguments)


@pytest.mark.parametrize("chart", COMBINED)
def test_two_renderings_of_a_chart_are_identical(charts: Charts, chart: str) -> None:
    arguments = ["template", "a", *charts.arguments(chart, COMBINED[chart])]
    assert helm.run(arguments) == helm.run(arguments)


def test_no_template_reads_the_cluster_or_draws() -> None:
    """A rendering without a cluster, or at another time, would differ."""
    for path in helm.FOLDER.glob("*/templates/*"):
        text = path.read_text(encoding="utf-8")
        assert not [word for word in FORBIDDEN if f"({word}" in text or f" {word}" in text], path


@pytest.mark.parametrize("chart", ["kafka", "mysql", "object-store"])
def test_cert_manager_can_issue_the_certificate(charts: Charts, chart: str) -> None:
    issuer = {"name": "company", "kind": "ClusterIssuer"}
    tls = {"enabled": True, "certManager": {"issuerRef": issuer}}
    documents = charts.render(chart, {"tls": tls})
    spec = only_of_kind(documents, "Certificate")["spec"]
    assert spec["secretName"] == f"sluicegate-{chart}-tls"
    assert spec["issuerRef"] == issuer
    assert spec["privateKey"]["encoding"] == "PKCS8"
    assert f"sluicegate-{chart}.sluicegate.svc" in spec["dnsNames"]
    assert "tls-ca" not in str(documents)
