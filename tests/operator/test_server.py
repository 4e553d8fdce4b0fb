"""The embedded API server itself: who may do what, and what a crash leaves."""

import ssl
import urllib.request

import pytest
from kubernetes import client

from infra.embedded.kubernetes import KubernetesServer
from tests.operator.api import Api, eventually, refused


def test_a_client_that_trusts_the_kubeconfig_s_certificate_is_served(api: Api) -> None:
    trusts = ssl.create_default_context(cafile=str(api.server.certificate))
    asked = urllib.request.Request(  # noqa: S310 - an address of ours
        f"{api.server.url}/version", headers={"Authorization": f"Bearer {api.server.token()}"}
    )
    with urllib.request.urlopen(asked, context=trusts) as answer:  # noqa: S310 - the same
        assert b"v1.37.1" in answer.read()


def test_it_listens_on_loopback_only(api: Api) -> None:
    assert api.server.host == "127.0.0.1"
    assert api.server.url.startswith("https://127.0.0.1:")


def test_a_user_without_a_role_may_do_nothing(api: Api, namespace: str) -> None:
    nobody = Api(api.server, "nobody")
    answer = refused(lambda: nobody.core.list_namespaced_pod(namespace))
    assert answer.status == 403
    assert 'User "nobody" cannot list resource "pods"' in answer.message


def test_a_role_of_a_group_is_enough_for_what_it_says_and_no_more(api: Api, namespace: str) -> None:
    rights = client.RbacAuthorizationV1Api(api.client)
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    rights.create_namespaced_role(namespace, {"metadata": {"name": "look"}, "rules": [rule]})
    group = {"kind": "Group", "name": "readers", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "Role", "name": "look", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "look"}, "subjects": [group], "roleRef": role}
    rights.create_namespaced_role_binding(namespace, binding)
    reader = Api(api.server, "reader")
    found = eventually(lambda: _listed(reader, namespace))
    assert found.items == []
    assert refused(lambda: reader.pod(namespace, "one")).status == 403


def _listed(reader: Api, namespace: str) -> "client.V1PodList | None":
    """Return pods; None while the server's authorizer has not seen the role yet."""
    try:
        return reader.core.list_namespaced_pod(namespace)
    except client.ApiException as error:
        if error.status != 403:
            raise
        return None


@pytest.mark.faults
def test_objects_outlive_a_crash_of_either_server_on_the_same_port(own_api: Api) -> None:
    server, namespace = own_api.server, own_api.namespace()
    own_api.pod(namespace, "one", job="orders")
    url = server.url
    server.api.kill()
    server.api.start()
    assert server.url == url
    server.etcd.kill()
    server.etcd.start()
    found = eventually(lambda: _pods(own_api, namespace))
    assert found == ["one"]


def _pods(api: Api, namespace: str) -> list[str]:
    try:
        return [pod.metadata.name for pod in api.core.list_namespaced_pod(namespace).items]
    except client.ApiException as error:
        if error.status not in (500, 503, 504):  # it has not found etcd again yet
            raise
        return []


def test_stopping_twice_is_stopping_once(own_api: Api) -> None:
    assert isinstance(own_api.server, KubernetesServer)
    own_api.server.stop()
    own_api.server.stop()
    assert own_api.server.api.pid is None
    assert own_api.server.etcd.pid is None
