"""The schemas of the charts, read by helm: a wrong value is rejected."""

import pytest

from infra.chart_docs import helm
from tests.integration.charts.rendering import Charts


@pytest.mark.parametrize("chart", helm.CHARTS)
def test_a_misspelt_value_is_rejected(charts: Charts, chart: str) -> None:
    assert "additional properties 'replcas' not allowed" in charts.refusal(chart, {"replcas": 3})


def test_a_misspelt_value_of_a_subchart_is_rejected(charts: Charts) -> None:
    assert "'replcas' not allowed" in charts.refusal("sluicegate", {"kafka": {"replcas": 3}})


def test_a_misspelt_field_of_a_job_is_rejected(charts: Charts) -> None:
    message = charts.refusal("job", {"spec": {"epochs": {"intervall": "5 seconds"}}})
    assert "'intervall' not allowed" in message


def test_a_value_that_the_api_server_would_reject_is_rejected_by_helm(charts: Charts) -> None:
    assert "upgradeMode" in charts.refusal("job", {"spec": {"upgradeMode": "blue-green"}})


def test_every_chart_lints_with_each_of_its_values_files(charts: Charts) -> None:
    helm.lint(charts.folder)
