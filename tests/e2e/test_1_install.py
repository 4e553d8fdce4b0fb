"""One command installs a working platform in a namespace that admits only restricted pods."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import CommandFailed, Object, eventually
from tests.e2e.manifests import ip_count
from tests.e2e.platform import RELEASE, VOLUME, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_the_volume_of_checkpoints_is_ready_with_no_values(platform: Platform) -> None:
    platform.cluster.run(
        "wait", f"checkpointvolume/{VOLUME}", "--for=jsonpath={.status.phase}=Ready", "--timeout=180s",
        timeout_s=200.0,
    )  # fmt: skip


def test_helm_test_checks_each_component(platform: Platform) -> None:
    output = platform.cluster.helm("test", RELEASE, "--timeout", "5m")
    assert output.count("Succeeded") >= 4, output


def test_no_container_has_more_than_the_restricted_standard_allows(platform: Platform) -> None:
    for pod in platform.cluster.list_objects("pods"):
        for container in pod["spec"]["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"], container["name"]
            assert security["capabilities"] == {"drop": ["ALL"]}, container["name"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": {"cron": "0 2 * * *"}}, "a schedule needs"),
        ({"restart": {"strategy": "FixedDelay", "attempts": -1}}, "spec.restart.attempts"),
        ({"epochs": {"maxConcurrent": 2}}, "maxConcurrent"),
        ({"upgradeMode": "blue-green"}, 'Unsupported value: "blue-green"'),
        ({"driver": {"memory": "lots"}}, "spec.driver.memory"),
    ],
    ids=["schedule of a stream", "restarts below 0", "two epochs", "upgrade mode", "memory"],
)
def test_an_invalid_resource_is_rejected_with_the_reason(
    platform: Platform, change: Object, message: str
) -> None:
    with pytest.raises(CommandFailed) as error_info:
        platform.cluster.apply(ip_count(platform, "bad", **change))
    assert message in str(error_info.value)
    assert platform.cluster.get("streamingjob", "bad") is None


def test_a_job_cannot_run_as_an_account_that_is_not_for_drivers(platform: Platform) -> None:
    """The author of a StreamingJob got the operator's token that way."""
    cluster = platform.cluster
    cluster.apply(ip_count(platform, "evil", serviceAccount="default"))

    def refused() -> bool:
        return "is not marked as an account for drivers" in cluster.run("get", "events")

    eventually(refused, "an Event that names the account", within_s=180.0)
    assert not cluster.list_objects("pods", "sluicegate.dev/job=evil")
    cluster.run("delete", "streamingjob", "evil", "--timeout=120s", timeout_s=130.0)
