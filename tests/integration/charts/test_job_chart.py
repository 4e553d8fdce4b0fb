"""A job's values become one StreamingJob that the operator takes."""

from typing import Any

import pytest

from sluicegate_operator.api.codec import parse
from sluicegate_operator.api.savepoint import SavepointSpec
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.pods.driver import validate
from tests.integration.charts.rendering import Charts, Document, of_kind, the

TEMPLATE = {
    "spec": {
        "nodeSelector": {"pool": "streams"},
        "containers": [
            {"name": "proxy", "image": "proxy:1"},
            {"name": "driver", "env": [{"name": "MODE", "value": "fast"}]},
        ],
    }
}


def job(charts: Charts, values: dict[str, Any] | None = None) -> Document:
    return the(charts.render("job", values, release="ip-count"), "StreamingJob")


def containers(found: Document, role: str) -> dict[str, Document]:
    given = found["spec"][role]["template"]["spec"]["containers"]
    return {container["name"]: container for container in given}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"spec": {"driver": {"template": TEMPLATE}, "executor": {"instances": 2}}},
        {"spec": {"trigger": "AvailableNow", "schedule": {"cron": "0 3 * * *"}}},
        {"connections": {"enabled": False}},
    ],
    ids=["default", "templates", "batch", "no connections"],
)
def test_the_operator_takes_what_the_chart_makes(charts: Charts, values: dict[str, Any]) -> None:
    found = job(charts, values)
    made = parse(StreamingJobSpec, found["spec"], "spec")
    assert validate(found["metadata"]["name"], made) is None


def test_a_job_is_named_after_its_release(charts: Charts) -> None:
    assert job(charts)["metadata"]["name"] == "ip-count"


def test_driver_and_executors_are_told_where_the_platform_is(charts: Charts) -> None:
    found = job(charts, {"connections": {"platform": "shop"}})
    for role in ("driver", "executor"):
        (container,) = containers(found, role).values()
        assert container["env"] == [
            {
                "name": "SLUICEGATE_KAFKA",
                "valueFrom": {
                    "configMapKeyRef": {"name": "shop-connections", "key": "SLUICEGATE_KAFKA"}
                },
            },
            {
                "name": "SLUICEGATE_MYSQL",
                "valueFrom": {"secretKeyRef": {"name": "shop-mysql", "key": "url"}},
            },
        ]


def test_a_template_of_ones_own_keeps_what_it_says(charts: Charts) -> None:
    found = job(
        charts, {"spec": {"driver": {"template": TEMPLATE}}, "env": [{"name": "A", "value": "b"}]}
    )
    assert found["spec"]["driver"]["template"]["spec"]["nodeSelector"] == {"pool": "streams"}
    given = containers(found, "driver")
    assert given["proxy"] == {"name": "proxy", "image": "proxy:1"}
    names = [one["name"] for one in given["driver"]["env"]]
    assert names == ["SLUICEGATE_KAFKA", "SLUICEGATE_MYSQL", "A", "MODE"]


def test_an_authority_of_mysql_is_mounted_where_the_url_looks_for_it(charts: Charts) -> None:
    found = job(charts, {"connections": {"mysql": {"authority": "mysql-tls"}}})
    for role in ("driver", "executor"):
        (container,) = containers(found, role).values()
        assert container["volumeMounts"][0]["mountPath"] == "/etc/mysql-tls"


def test_the_driver_alone_is_given_kafkas_password(charts: Charts) -> None:
    found = job(charts, {"connections": {"kafkaConfig": "shop-kafka-client"}})
    (driver,) = containers(found, "driver").values()
    (executor,) = containers(found, "executor").values()
    name = "SLUICEGATE_KAFKA_CONFIG"
    assert {"name": name, "value": "/etc/kafka-client/kafka.properties"} in driver["env"]
    assert driver["volumeMounts"][0]["mountPath"] == "/etc/kafka-client"
    volumes = found["spec"]["driver"]["template"]["spec"]["volumes"]
    assert volumes == [{"name": "kafka-client", "secret": {"secretName": "shop-kafka-client"}}]
    assert name not in {one["name"] for one in executor["env"]}
    assert "volumeMounts" not in executor


def test_without_anything_to_say_there_is_no_template(charts: Charts) -> None:
    found = job(charts, {"connections": {"enabled": False}})
    assert "template" not in found["spec"]["driver"]


def test_an_example_can_be_replaced_by_a_file(charts: Charts) -> None:
    found = job(charts, {"spec": {"mainFile": "/app/job.py", "mainModule": None, "arguments": []}})
    assert found["spec"]["mainFile"] == "/app/job.py"
    assert "mainModule" not in found["spec"]


def test_a_savepoint_beside_the_job_is_taken_by_the_operator(charts: Charts) -> None:
    found = the(charts.render("job", {"savepoint": {"enabled": True}}), "Savepoint")
    made = parse(SavepointSpec, found["spec"], "spec")
    assert made.job == "sluicegate"


def test_an_account_that_a_deleted_job_may_need_outlives_the_release(charts: Charts) -> None:
    found = charts.render("job", {"account": {"create": True}}, release="ip-count")
    assert the(found, "StreamingJob")["spec"]["serviceAccount"] == "ip-count-driver"
    for kind in ("ServiceAccount", "Role", "RoleBinding"):
        assert the(found, kind)["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_a_job_alone_makes_nothing_else(charts: Charts) -> None:
    found = charts.render("job")
    assert (
        [d["kind"] for d in found]
        == ["StreamingJob"]
        == [d["kind"] for d in of_kind(found, "StreamingJob")]
    )


def test_a_packaged_jobs_targets_are_made_before_its_first_driver(charts: Charts) -> None:
    """By a Job that gets in as the driver does, and that the servers' NetworkPolicies let through."""
    values = {"targets": "ip_count", "connections": {"kafkaConfig": "sluicegate-kafka-client"}}
    found = the(charts.render("job", values, release="ip-count"), "Job")
    assert found["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    template = found["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["command"] == ["sluicegate", "targets", "ip_count"]
    driver = containers(job(charts, values), "driver")["driver"]
    assert container["env"] == driver["env"]
    assert all(mount in container["volumeMounts"] for mount in driver["volumeMounts"])
    for server in ("kafka", "mysql"):
        assert template["metadata"]["labels"][f"sluicegate-{server}-client"] == "true"


def test_without_targets_nothing_is_made(charts: Charts) -> None:
    assert not of_kind(charts.render("job", {}, release="ip-count"), "Job")
