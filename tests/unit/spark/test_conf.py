"""Spark settings from outside: which are rejected, how they merge, what Kubernetes needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from sluicegate.errors import SettingsInvalid
from sluicegate.spark.conf import REQUIRED, check_conf, kubernetes_conf, merge
from sluicegate.spark.session import _STATIC_SETTINGS, RUNTIME_SETTINGS, prepare

POD = {
    "SLUICEGATE_POD_IP": "10.1.2.3",
    "SLUICEGATE_POD_NAME": "j-1-driver",
    "SLUICEGATE_POD_NAMESPACE": "team",
}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.speculation", "True"),
        ("spark.sql.shuffle.orderIndependentChecksum.enabled", "false"),
        ("spark.sql.streaming.stateStore.checkpointFormatVersion", "2"),
        ("spark.sql.session.timeZone", "Europe/Zurich"),
        ("spark.master", "local[8]"),
        ("spark.sql.streaming.stateStore.providerClass", "x.Y"),
        ("spark.submit.deployMode", "cluster"),
    ],
)
def test_a_setting_that_breaks_a_rule_is_rejected(key: str, value: str) -> None:
    with pytest.raises(SettingsInvalid, match=key) as raised:
        check_conf({key: value})
    assert raised.value.exit_code == 64


@pytest.mark.parametrize("value", ["true", "True", "TRUE"])
def test_speculation_of_a_users_session_is_found(value: str) -> None:
    """Spark takes any case for true."""
    context = SimpleNamespace(getConf=lambda: {"spark.speculation": value})
    with pytest.raises(SettingsInvalid, match=r"spark.speculation is on"):
        prepare(cast("SparkSession", SimpleNamespace(sparkContext=context)))


def test_our_own_settings_are_accepted() -> None:
    """The required settings and the settings of a session agree."""
    ours = {**_STATIC_SETTINGS, **RUNTIME_SETTINGS}
    check_conf({key: ours[key] for key in REQUIRED if key in ours})


def test_a_users_value_wins_over_our_default() -> None:
    given = {"spark.ui.enabled": "true", "spark.sql.execution.arrow.maxRecordsPerBatch": "7"}
    check_conf(given)
    assert merge({"spark.ui.enabled": "false", "a": "b"}, given) == {"a": "b", **given}


def test_a_users_jars_follow_ours() -> None:
    assert merge({"spark.jars": "a.jar"}, {"spark.jars": "b.jar"}) == {"spark.jars": "a.jar,b.jar"}


def test_a_driver_in_a_pod_is_reachable_by_its_executors() -> None:
    found = kubernetes_conf(POD)
    assert found["spark.driver.host"] == "10.1.2.3"
    assert found["spark.driver.bindAddress"] == "0.0.0.0"  # noqa: S104 - the claim of the test
    assert found["spark.kubernetes.driver.pod.name"] == "j-1-driver"
    assert found["spark.kubernetes.namespace"] == "team"
    assert found["spark.kubernetes.executor.label.sluicegate.dev/role"] == "executor"


def test_an_ipv6_address_is_in_brackets() -> None:
    assert (
        kubernetes_conf({**POD, "SLUICEGATE_POD_IP": "fd00::7"})["spark.driver.host"] == "[fd00::7]"
    )


def test_a_pod_without_its_address_starts_nothing() -> None:
    with pytest.raises(SettingsInvalid, match="SLUICEGATE_POD_IP is not set"):
        kubernetes_conf({**POD, "SLUICEGATE_POD_IP": ""})


def test_a_session_keeps_its_own_values_unless_they_break_a_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
        "spark.sql.session.timeZone": "Europe/Berlin",
    }
    monkeypatch.setattr("sluicegate.spark.session.all_settings", lambda _spark: own)
    found: dict[str, str] = {}
    context = SimpleNamespace(getConf=dict[str, str])
    conf = SimpleNamespace(set=found.__setitem__)
    prepare(cast("SparkSession", SimpleNamespace(sparkContext=context, conf=conf)))
    assert found["spark.sql.execution.arrow.maxRecordsPerBatch"] == "7"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.sql.execution.arrow.maxBytesPerBatch"] == "16m"
