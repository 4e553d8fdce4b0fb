"""A job's values are rendered as one StreamingJob that the operator accepts."""

import json
from typing import Any

import pytest

from sluicegate_operator.api import labels
from sluicegate_operator.api.codec import parse
from sluicegate_operator.api.savepoint import SavepointSpec
from sluicegate_operator.api.streaming_job import StreamingJobSpec
from sluicegate_operator.pods.driver import validate
from tests.integration.charts.rendering import Charts, Document, of_kind, only_of_kind, selects
from tests.unit.operator.pods.pod_builders import container_of, pod_of

TEMPLATE = {
    "spec": {
        "nodeSelector": {"pool": "streams"},
        "containers": [
            {"name": "proxy", "image": "proxy:1"},
            {"name": "driver", "env": [{"name": "MODE", "value": "fast"}]},
        ],
    }
}


def render_job(charts: Charts, values: dict[str, Any] | None = None) -> Document:
    return only_of_kind(charts.render("job", values, release="ip-count"), "StreamingJob")


def containers_of(resource: Document, role: str) -> dict[str, Document]:
    containers = resource["spec"][role]["template"]["spec"]["containers"]
    return {container["name"]: container for container in containers}


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
def test_the_operator_accepts_the_rendered_job(charts: Charts, values: dict[str, Any]) -> None:
    resource = render_job(charts, values)
    spec = parse(StreamingJobSpec, resource["spec"], "spec")
    assert validate(resource["metadata"]["name"], spec) is None


def test_a_job_is_named_after_its_release(charts: Charts) -> None:
    assert render_job(charts)["metadata"]["name"] == "ip-count"


def test_driver_and_executors_get_the_connections_of_the_platform(charts: Charts) -> None:
    resource = render_job(charts, {"connections": {"platform": "shop"}})
    for role in ("driver", "executor"):
        (container,) = containers_of(resource, role).values()
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
            {
                "name": "SLUICEGATE_MYSQL_TLS",
                "valueFrom": {
                    "configMapKeyRef": {
                        "name": "shop-connections",
                        "key": "SLUICEGATE_MYSQL_TLS",
                        "optional": True,
                    }
                },
            },
        ]


def test_a_job_without_mysql_needs_no_secret(charts: Charts) -> None:
    resource = render_job(charts, {"connections": {"mysql": {"enabled": False}}})
    for role in ("driver", "executor"):
        (container,) = containers_of(resource, role).values()
        assert [variable["name"] for variable in container["env"]] == ["SLUICEGATE_KAFKA"]


def test_a_user_template_keeps_its_fields(charts: Charts) -> None:
    resource = render_job(
        charts, {"spec": {"driver": {"template": TEMPLATE}}, "env": [{"name": "A", "value": "b"}]}
    )
    assert resource["spec"]["driver"]["template"]["spec"]["nodeSelector"] == {"pool": "streams"}
    containers = containers_of(resource, "driver")
    assert containers["proxy"] == {"name": "proxy", "image": "proxy:1"}
    names = [variable["name"] for variable in containers["driver"]["env"]]
    ours = ["SLUICEGATE_KAFKA", "SLUICEGATE_MYSQL", "SLUICEGATE_MYSQL_TLS"]
    assert names == [*ours, "A", "MODE"]


def test_the_ca_of_mysql_is_mounted_at_the_path_in_the_url(charts: Charts) -> None:
    resource = render_job(charts, {"connections": {"mysql": {"authority": "mysql-tls"}}})
    for role in ("driver", "executor"):
        (container,) = containers_of(resource, role).values()
        assert container["volumeMounts"][0]["mountPath"] == "/etc/mysql-tls"


def test_only_the_driver_gets_kafkas_password(charts: Charts) -> None:
    resource = render_job(charts, {"connections": {"kafkaConfig": "shop-kafka-client"}})
    (driver,) = containers_of(resource, "driver").values()
    (executor,) = containers_of(resource, "executor").values()
    name = "SLUICEGATE_KAFKA_CONFIG"
    assert {"name": name, "value": "/etc/kafka-client/kafka.properties"} in driver["env"]
    assert driver["volumeMounts"][0]["mountPath"] == "/etc/kafka-client"
    volumes = resource["spec"]["driver"]["template"]["spec"]["volumes"]
    assert volumes == [{"name": "kafka-client", "secret": {"secretName": "shop-kafka-client"}}]
    assert name not in {variable["name"] for variable in executor["env"]}
    assert "volumeMounts" not in executor


def test_a_job_without_connections_has_no_template(charts: Charts) -> None:
    resource = render_job(charts, {"connections": {"enabled": False}})
    assert "template" not in resource["spec"]["driver"]


def test_an_example_can_be_replaced_by_a_file(charts: Charts) -> None:
    resource = render_job(
        charts, {"spec": {"mainFile": "/app/job.py", "mainModule": None, "arguments": []}}
    )
    assert resource["spec"]["mainFile"] == "/app/job.py"
    assert "mainModule" not in resource["spec"]


def test_the_operator_accepts_the_savepoint_of_the_chart(charts: Charts) -> None:
    resource = only_of_kind(charts.render("job", {"savepoint": {"enabled": True}}), "Savepoint")
    spec = parse(SavepointSpec, resource["spec"], "spec")
    assert spec.job == "sluicegate"


def test_a_created_account_outlives_the_release_for_deleted_jobs(charts: Charts) -> None:
    documents = charts.render("job", {"account": {"create": True}}, release="ip-count")
    assert only_of_kind(documents, "StreamingJob")["spec"]["serviceAccount"] == "ip-count-driver"
    for kind in ("ServiceAccount", "Role", "RoleBinding"):
        assert (
            only_of_kind(documents, kind)["metadata"]["annotations"]["helm.sh/resource-policy"]
            == "keep"
        )


def test_the_default_values_render_only_a_streaming_job(charts: Charts) -> None:
    documents = charts.render("job")
    assert (
        [d["kind"] for d in documents]
        == ["StreamingJob"]
        == [d["kind"] for d in of_kind(documents, "StreamingJob")]
    )


def test_a_packaged_jobs_targets_are_created_before_its_first_driver(charts: Charts) -> None:
    """By a Job with the driver's connections, which the servers' NetworkPolicies allow."""
    values = {"targets": "ip_count", "connections": {"kafkaConfig": "sluicegate-kafka-client"}}
    hook = only_of_kind(charts.render("job", values, release="ip-count"), "Job")
    assert hook["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    template = hook["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["command"] == ["sluicegate", "targets", "ip_count"]
    driver = containers_of(render_job(charts, values), "driver")["driver"]
    assert container["env"] == driver["env"]
    assert all(mount in container["volumeMounts"] for mount in driver["volumeMounts"])
    for server in ("kafka", "mysql"):
        assert template["metadata"]["labels"][f"sluicegate-{server}-client"] == "true"


def test_the_job_of_the_targets_has_only_volumes_that_the_driver_mounts(charts: Charts) -> None:
    """Two volumes tmp would be refused, and a claim that nobody mounts may be attached elsewhere."""
    names = ("tmp", "work", "mine")
    spec = {
        "volumes": [{"name": name, "emptyDir": {}} for name in names],
        "containers": [
            {"name": "driver", "volumeMounts": [{"name": "mine", "mountPath": "/mine"}]},
        ],
    }
    values = {"targets": "ip_count", "spec": {"driver": {"template": {"spec": spec}}}}
    pod = only_of_kind(charts.render("job", values, release="ip-count"), "Job")["spec"]["template"]
    volumes = [volume["name"] for volume in pod["spec"]["volumes"]]
    assert volumes[:1] == ["tmp"]
    assert {"tmp", "work"} & set(volumes[1:]) == set()
    assert "mine" in volumes
    (container,) = pod["spec"]["containers"]
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert len(set(paths)) == len(paths)


def test_without_targets_there_is_no_job(charts: Charts) -> None:
    assert not of_kind(charts.render("job", {}, release="ip-count"), "Job")


METRICS = {
    "spec": {"epochs": {"metricsPort": 9464}, "executor": {"instances": 2}},
    "metrics": {"podMonitor": {"enabled": True}},
}


def driver_of(documents: list[Document]) -> Document:
    """Return the driver's pod that the operator makes of the StreamingJob."""
    return pod_of(parse(StreamingJobSpec, only_of_kind(documents, "StreamingJob")["spec"], "spec"))


def test_the_pod_monitor_selects_the_drivers_port(charts: Charts) -> None:
    documents = charts.render("job", METRICS, release="clicks")
    driver = driver_of(documents)
    monitor = only_of_kind(documents, "PodMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= driver["metadata"]["labels"].items()
    # a standby opens the port when it takes over, and the operator removes the label then
    absent = {"key": labels.STANDBY, "operator": "DoesNotExist"}
    assert monitor["selector"]["matchExpressions"] == [absent]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in container_of(driver)["ports"]}
    assert endpoint["honorLabels"]


def test_scrapes_of_monitoring_and_the_jobs_executors_reach_the_driver(charts: Charts) -> None:
    """Where the operator makes no policy for the job, this one isolates the driver."""
    documents = charts.render("job", METRICS, release="clicks")
    driver = driver_of(documents)
    policy = only_of_kind(documents, "NetworkPolicy")
    assert selects(policy, driver)
    scrapes, own = policy["spec"]["ingress"]
    assert scrapes["ports"] == [{"port": 9464}]
    (source,) = scrapes["from"]
    assert source["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "monitoring"
    }
    executor = json.loads(driver["metadata"]["annotations"][labels.EXECUTOR_TEMPLATE])
    (peer,) = own["from"]
    assert peer["podSelector"]["matchLabels"].items() <= executor["metadata"]["labels"].items()
    assert "ports" not in own


def test_a_disruption_budget_is_made_on_request_and_selects_drivers_alone(charts: Charts) -> None:
    assert not of_kind(charts.render("job"), "PodDisruptionBudget")
    values = {"podDisruptionBudget": {"enabled": True}}
    rendered = charts.render("job", values, release="ip-count")
    budget = only_of_kind(rendered, "PodDisruptionBudget")
    assert budget["spec"]["minAvailable"] == 1
    for role, selected in ((labels.DRIVER, True), (labels.EXECUTOR, False)):
        pod = {"metadata": {"labels": {labels.JOB: "ip-count", labels.ROLE: role}}}
        assert selects(budget, pod) is selected
