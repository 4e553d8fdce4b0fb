"""The local API server: TLS, permissions and recovery from crashes."""

import ssl
import urllib.request

import pytest

from tests.integration.operator.api import Api, eventually, rejection
from tests.integration.operator.rest_client import ApiRejection

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"


def test_a_client_that_trusts_the_certificate_is_served(api: Api) -> None:
    tls_context = ssl.create_default_context(cafile=str(api.server.certificate))
    request = urllib.request.Request(  # noqa: S310 - a local URL
        f"{api.server.url}/version", headers={"Authorization": f"Bearer {api.server.token()}"}
    )
    with urllib.request.urlopen(request, context=tls_context) as answer:  # noqa: S310 - a local URL
        assert b"v1.37.1" in answer.read()


def pods_or_nothing(api: Api, namespace: str, *expected: int) -> list[str] | None:
    """Return the names of pods, or None if the answer is an error that is expected for a while."""
    try:
        return api.pods(namespace)
    except ApiRejection as refusal:
        if refusal.status not in expected:
            raise
        return None


def test_a_user_without_a_role_has_no_permissions(api: Api, namespace: str) -> None:
    nobody = Api(api.server, "nobody")
    answer = rejection(lambda: nobody.pods(namespace))
    assert answer.status == 403
    assert 'User "nobody" cannot list resource "pods"' in answer.message


def test_the_role_of_a_group_grants_its_permissions_only(api: Api, namespace: str) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    role = {"metadata": {"name": "list-pods"}, "rules": [rule]}
    api.request("POST", f"{RBAC}/{namespace}/roles", role)
    api_group = {"apiGroup": "rbac.authorization.k8s.io"}
    binding = {
        "metadata": {"name": "list-pods"},
        "subjects": [{"kind": "Group", "name": "readers", **api_group}],
        "roleRef": {"kind": "Role", "name": "list-pods", **api_group},
    }
    api.request("POST", f"{RBAC}/{namespace}/rolebindings", binding)
    reader = Api(api.server, "reader")
    api.pod(namespace, "one", job="orders")
    # the authorizer sees a new role after a moment
    assert eventually(lambda: pods_or_nothing(reader, namespace, 403)) == ["one"]
    assert rejection(lambda: reader.pod(namespace, "two")).status == 403


@pytest.mark.faults
def test_objects_survive_a_crash_of_the_api_server_and_of_etcd(own_api: Api) -> None:
    server, namespace = own_api.server, own_api.namespace()
    own_api.pod(namespace, "one", job="orders")
    url = server.url
    server.api.kill()
    server.api.start()
    assert server.url == url
    server.etcd.kill()
    server.etcd.start()
    # the API server reconnects to etcd by itself
    pods = eventually(lambda: pods_or_nothing(own_api, namespace, 500, 503, 504))
    assert pods == ["one"]


def test_a_second_stop_does_nothing(own_api: Api) -> None:
    own_api.server.stop()
    own_api.server.stop()
    assert own_api.server.api.pid is None
    assert own_api.server.etcd.pid is None
