"""A second tenant tries to leave its place: each attempt is refused with a reason, and its neighbor goes on."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest

from tests.e2e.cluster import Cluster, CommandFailed, Object, eventually
from tests.e2e.platform import (
    CLIENT_POD,
    IMAGE,
    NAMESPACE,
    OPERATOR_NAMESPACE,
    RELEASE,
    STORE,
    TENANT,
    TENANT_USER,
    Platform,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LINES = 100

_HOST = {"spec": {"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}}
_NETWORK = {"spec": {"hostNetwork": True}}
_PRIVILEGED = {
    "spec": {"containers": [{"name": "driver", "securityContext": {"privileged": True}}]}
}
JOBS: dict[str, tuple[Object, str, str]] = {
    "as-operator": (
        {"serviceAccount": f"{RELEASE}-operator"},
        "ServiceAccountMissing",
        f"{TENANT}/{RELEASE}-operator",
    ),
    "as-admin": (
        {"serviceAccount": "admin"},
        "SpecInvalid",
        "admin is not marked as an account for drivers",
    ),
    "disk": ({"driver": {"template": _HOST}}, "SpecInvalid", "hostPath is not permitted"),
    "network": ({"driver": {"template": _NETWORK}}, "SpecInvalid", "hostNetwork"),
    "privileged": ({"driver": {"template": _PRIVILEGED}}, "SpecInvalid", "privileged"),
}
"""What a job asks for, and the reason and text of the Event about it."""

_KEYS = {"credentialsSecret": TENANT_USER}
_STORE = {"endpoint": f"http://{STORE}.{NAMESPACE}.svc:7070"}
VOLUMES: dict[str, tuple[Object, str]] = {
    "neighbors-bucket": (
        {**_STORE, **_KEYS, "bucket": "sluicegate", "prefix": "ip-count"},
        "Overlaps",
    ),
    "neighbors-prefix": (
        {**_STORE, **_KEYS, "bucket": "tenants", "prefix": "bank"},
        "AccessDenied",
    ),
    "without-keys": ({"bucket": "backups", "prefix": "of-the-operator"}, "NotPermitted"),
    "metadata": (
        {**_KEYS, "endpoint": "http://169.254.169.254", "bucket": "metadata"},
        "NotPermitted",
    ),
    "api-server": (
        {**_KEYS, "endpoint": "https://kubernetes.default.svc", "bucket": "secrets"},
        "NotPermitted",
    ),
}
"""What a volume asks for, and the reason in its condition Ready."""

_ATTACK = """
import sys
from sluicegate.errors import StoreUnavailable
from sluicegate.storage.object_store import open_store
store, name = open_store(sys.argv[1]), sys.argv[2]
attempts = {
    "get": lambda: store.read(name),
    "put": lambda: store.put(name, [b"forged"]),
    "create": lambda: store.create("epochs/999999", b"forged"),
    "list": lambda: list(store.names("")),
    "delete": lambda: store.delete(name),
}
for verb, attempt in attempts.items():
    try:
        attempt()
    except StoreUnavailable as error:
        if "403" not in str(error) and "AccessDenied" not in str(error):
            raise
    else:
        sys.exit(f"{verb} was permitted")
print("refused")
"""


@pytest.fixture(scope="module")
def tenant(platform: Platform) -> Iterator[Cluster]:
    """Yield the tenant's namespace, with all attempts applied at once and one volume of its own."""
    cluster = replace(platform.cluster, namespace=TENANT)
    marked = {"name": "sluicegate-driver", "labels": {"sluicegate.dev/driver-account": "true"}}
    accounts = ({"name": "admin"}, marked)
    cluster.apply(
        *({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": one} for one in accounts)
    )
    own = {**_STORE, **_KEYS, "bucket": "tenants", "prefix": TENANT}
    volumes = {"own": own, **{name: spec for name, (spec, _) in VOLUMES.items()}}
    job: Object = {
        "image": IMAGE,
        "mainModule": "sluicegate.cli",
        "arguments": ["version"],
        "executor": {"instances": 0},
    }
    cluster.apply(
        *(_resource("CheckpointVolume", name, spec) for name, spec in volumes.items()),
        *(
            _resource("StreamingJob", name, {**job, "checkpoint": {"volume": "own"}, **spec})
            for name, (spec, _, _) in JOBS.items()
        ),
    )
    yield cluster
    for kind in ("streamingjobs", "checkpointvolumes"):
        cluster.run("delete", kind, "--all", "--timeout=60s")


def _resource(kind: str, name: str, spec: Object) -> Object:
    api_version = "sluicegate.dev/v1alpha1"
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def refusal(cluster: Cluster, volume: str) -> Object:
    """Wait until a volume is not ready, after its check; return its condition Ready."""

    def poll() -> Object | None:
        status = (cluster.get("checkpointvolume", volume) or {}).get("status", {})
        ready = (one for one in status.get("conditions", ()) if one["type"] == "Ready")
        return next(
            (one for one in ready if one["status"] == "False" and one["reason"] != "Checking"), None
        )

    return eventually(poll, f"{volume} is refused", within_s=30.0)


def test_the_tenants_own_volume_is_ready(tenant: Cluster) -> None:
    def ready() -> bool:
        volume = tenant.get("checkpointvolume", "own") or {}
        return bool(volume.get("status", {}).get("phase") == "Ready")

    eventually(ready, "the tenant's own volume", within_s=30.0)


@pytest.mark.parametrize("name", JOBS)
def test_a_job_gets_neither_an_account_nor_the_node(tenant: Cluster, name: str) -> None:
    _, reason, text = JOBS[name]

    def reported() -> bool:
        events = [e for e in tenant.list_objects("events") if e["involvedObject"]["name"] == name]
        return any(event["reason"] == reason and text in event["message"] for event in events)

    eventually(reported, f"an Event {reason} of {name}: {text}", within_s=30.0)
    assert tenant.list_objects("pods") == []


@pytest.mark.parametrize("name", VOLUMES)
def test_a_volume_reaches_nothing_that_is_not_the_tenants(tenant: Cluster, name: str) -> None:
    assert refusal(tenant, name)["reason"] == VOLUMES[name][1]


def test_each_refusal_is_an_event(tenant: Cluster) -> None:
    refused = {*JOBS, *VOLUMES}

    def reported() -> bool:
        events = tenant.list_objects("events")
        return refused <= {
            event["involvedObject"]["name"] for event in events if event["type"] == "Warning"
        }

    eventually(reported, f"a warning about each of {sorted(refused)}", within_s=30.0)


def test_the_tenants_key_opens_nothing_of_its_neighbor(platform: Platform, tenant: Cluster) -> None:
    secret = tenant.get("secret", TENANT_USER)
    assert secret is not None
    keys = {key: base64.b64decode(text).decode() for key, text in secret["data"].items()}
    address = platform.checkpoint("ip-count")
    name = next(name for name in platform.objects(address) if name.startswith("epochs/"))
    output = platform.cluster.execute(
        CLIENT_POD,
        "env",
        f"AWS_ACCESS_KEY_ID={keys['accessKeyId']}",
        f"AWS_SECRET_ACCESS_KEY={keys['secretAccessKey']}",
        *("python", "-c", _ATTACK, address, name),
    )
    assert output.strip() == "refused"
    assert name in platform.objects(address)


def test_a_tenant_sees_neither_roots_secret_nor_the_operators(tenant: Cluster) -> None:
    names = {secret["metadata"]["name"] for secret in tenant.list_objects("secrets")}
    assert names == {TENANT_USER}
    with pytest.raises(CommandFailed, match="no"):
        tenant.run(
            *("auth", "can-i", "get", "secrets", "--namespace", OPERATOR_NAMESPACE),
            *("--as", f"system:serviceaccount:{TENANT}:admin"),
        )


def test_the_neighbor_goes_on(platform: Platform, tenant: Cluster, lines: Iterator[bytes]) -> None:
    assert tenant.namespace == TENANT
    platform.feed(list(islice(lines, LINES)))
    platform.wait_exact("ip_count", "ip-count", within_s=60.0)
    volume = platform.cluster.get("checkpointvolume", "checkpoints") or {}
    assert volume["status"]["phase"] == "Ready"
