"""The embedded API server itself: who may do what, and what a crash leaves."""

import ssl
import urllib.request

import pytest

from tests.operator.api import Api, eventually, refused
from tests.operator.rest import Refused

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"


def test_a_client_that_trusts_the_server_s_certificate_is_served(api: Api) -> None:
    trusts = ssl.create_default_context(cafile=str(api.server.certificate))
    asked = urllib.request.Request(  # noqa: S310 - an address of ours
        f"{api.server.url}/version", headers={"Authorization": f"Bearer {api.server.token()}"}
    )
    with urllib.request.urlopen(asked, context=trusts) as answer:  # noqa: S310 - the same
        assert b"v1.37.1" in answer.read()


def pods_or_nothing(api: Api, namespace: str, *passing: int) -> list[str] | None:
    """Return names of pods; None while the answer is an error that passes."""
    try:
        return api.pods(namespace)
    except Refused as refusal:
        if refusal.status not in passing:
            raise
        return None


def test_a_user_without_a_role_may_do_nothing(api: Api, namespace: str) -> None:
    nobody = Api(api.server, "nobody")
    answer = refused(lambda: nobody.pods(namespace))
    assert answer.status == 403
    assert 'User "nobody" cannot list resource "pods"' in answer.message


def test_a_role_of_a_group_is_enough_for_what_it_says_and_no_more(api: Api, namespace: str) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    role = {"metadata": {"name": "look"}, "rules": [rule]}
    api.ask("POST", f"{RBAC}/{namespace}/roles", role)
    of = {"apiGroup": "rbac.authorization.k8s.io"}
    binding = {
        "metadata": {"name": "look"},
        "subjects": [{"kind": "Group", "name": "readers", **of}],
        "roleRef": {"kind": "Role", "name": "look", **of},
    }
    api.ask("POST", f"{RBAC}/{namespace}/rolebindings", binding)
    reader = Api(api.server, "reader")
    api.pod(namespace, "one", job="orders")
    # the authorizer sees a role a moment after it was made
    assert eventually(lambda: pods_or_nothing(reader, namespace, 403)) == ["one"]
    assert refused(lambda: reader.pod(namespace, "two")).status == 403


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
    # the API server finds etcd again by itself
    found = eventually(lambda: pods_or_nothing(own_api, namespace, 500, 503, 504))
    assert found == ["one"]


def test_stopping_twice_is_stopping_once(own_api: Api) -> None:
    own_api.server.stop()
    own_api.server.stop()
    assert own_api.server.api.pid is None
    assert own_api.server.etcd.pid is None
