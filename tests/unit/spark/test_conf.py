"""Spark's settings from outside: what is refused, what is joined, what Kubernetes needs."""

from __future__ import annotations

import pytest

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.spark.conf import _NEEDED, check_conf, joined, on_kubernetes
from sluicegate.spark.session import _STATIC_SETTINGS, RUNTIME_SETTINGS

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
def test_a_setting_that_breaks_a_rule_is_refused(key: str, value: str) -> None:
    with pytest.raises(SettingsInvalid, match=key) as raised:
        check_conf({key: value})
    assert raised.value.exit_code == 64


def test_what_we_set_ourselves_may_be_said_again() -> None:
    """The list of what is needed and the list of what is set say the same."""
    ours = {**_STATIC_SETTINGS, **RUNTIME_SETTINGS}
    check_conf({key: ours[key] for key in _NEEDED if key in ours})


def test_a_users_value_wins_over_a_default_of_ours() -> None:
    given = {"spark.ui.enabled": "true", "spark.sql.execution.arrow.maxRecordsPerBatch": "7"}
    check_conf(given)
    assert joined({"spark.ui.enabled": "false", "a": "b"}, given) == {"a": "b", **given}


def test_a_users_jars_come_behind_ours() -> None:
    assert joined({"spark.jars": "a.jar"}, {"spark.jars": "b.jar"}) == {"spark.jars": "a.jar,b.jar"}


def test_a_driver_in_a_pod_is_found_by_its_executors() -> None:
    found = on_kubernetes(POD)
    assert found["spark.driver.host"] == "10.1.2.3"
    assert found["spark.driver.bindAddress"] == "0.0.0.0"  # noqa: S104 - what is claimed
    assert found["spark.kubernetes.driver.pod.name"] == "j-1-driver"
    assert found["spark.kubernetes.namespace"] == "team"
    assert found["spark.kubernetes.executor.label.sluicegate.dev/role"] == "executor"


def test_an_address_of_ip_version_6_is_in_brackets() -> None:
    assert (
        on_kubernetes({**POD, "SLUICEGATE_POD_IP": "fd00::7"})["spark.driver.host"] == "[fd00::7]"
    )


def test_a_pod_that_does_not_know_itself_starts_nothing() -> None:
    with pytest.raises(SettingsInvalid, match="SLUICEGATE_POD_IP is not set"):
        on_kubernetes({**POD, "SLUICEGATE_POD_IP": ""})
