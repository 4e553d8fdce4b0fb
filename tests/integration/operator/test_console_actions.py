"""The console acts on StreamingJobs at a real API server, with the rights that its chart grants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from infra.toolchain import go_programs
from sluicegate.console.app import Access, create_app
from sluicegate.console.cluster import StreamingJobs
from sluicegate.console.identity import LoginProxy
from sluicegate.console.reader import Reader
from sluicegate.deployment.api_server import ApiServer, RequestRejected
from sluicegate.storage.driver_start import JOB, DriverStart, write_start
from sluicegate_operator.api.crds import SAVEPOINT
from tests.integration.charts.rendering import Charts, vendored_charts
from tests.integration.operator import rbac
from tests.integration.operator.api import Api
from tests.integration.operator.operator_thread import spec_of
from tests.unit.console.browser import Answer, new, post, request

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

SECRET = "the proxy's own secret"
ONCALL, READERS = "shop-oncall", "shop-readers"
ACCOUNT = "sluicegate-console"
PAGE = "/actions/clicks/1"


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Charts:
    if reason := go_programs.tool_missing_reason("helm"):
        pytest.skip(reason)
    return vendored_charts(tmp_path_factory.mktemp("charts"))


@dataclass(frozen=True)
class Site:
    """A console behind a login proxy, with the job `clicks` in a namespace of the test."""

    app: ASGIApp
    api: Api
    namespace: str
    console: ApiServer
    checkpoint: str

    def open(self, user: str = "ann", groups: str = ONCALL) -> Answer:
        """Return the page as the proxy's user sees it."""
        return request(self.app, PAGE, **proxied(user, groups))

    def act(
        self,
        action: str,
        user: str = "ann",
        groups: str = ONCALL,
        *,
        form: Mapping[str, str | None] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Confirm an action of the page; `form` and `headers` replace what a browser sends."""
        page = self.open(user, groups)
        token, target = (
            re.search(rf'name="{name}" value="(\w+)"', page.body) for name in ("token", "target")
        )
        offered = re.search(
            rf'name="action" value="{action}">.*?"value" value="(\S*)"', page.body, re.DOTALL
        )
        fields = {
            "token": token[1] if token else "",
            "target": target[1] if target else "",
            "action": action,
            "value": offered[1] if offered else "",
            "confirmed": "on",
            **(form or {}),
        }
        sent = {"sec_fetch_site": "same-origin", **proxied(user, groups), **(headers or {})}
        given = {name: text for name, text in fields.items() if text is not None}
        return post(self.app, PAGE, given, **{name: text for name, text in sent.items() if text})

    @property
    def is_unchanged(self) -> bool:
        """Whether nobody has changed the job."""
        return (self.spec["suspend"], self.spec["restartNonce"]) == (False, 0)

    @property
    def spec(self) -> dict[str, Any]:
        """The spec of the job as it is."""
        return dict(self.api.get(self.namespace, "clicks")["spec"])


def proxied(user: str, groups: str) -> dict[str, str]:
    """Return the headers of the login proxy."""
    return {
        "x_sluicegate_proxy": SECRET,
        "x_forwarded_user": user,
        "x_forwarded_groups": groups,
    }


def grant(api: Api, namespace: str, group: str, rules: list[dict[str, Any]]) -> None:
    """Give a group of people rights in a namespace."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    api.request("POST", f"{path}/roles", {"metadata": {"name": group}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": group}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}
    body = {"metadata": {"name": group}, "roleRef": role, "subjects": [subject]}
    api.request("POST", f"{path}/rolebindings", body)


def install(charts: Charts, api: Api, namespace: str, folder: Path, **actions: object) -> ApiServer:
    """Create the console's account with the rights of its chart, and return its access."""
    values = {
        "addresses": ["s3://checkpoints"],
        "actions": {
            "enabled": True,
            "proxySecret": "login-proxy",
            "groups": [ONCALL, READERS],
            **actions,
        },
    }
    for body in charts.render("console", values, namespace=namespace):
        if body["kind"] == "ServiceAccount":
            api.create_core(namespace, "serviceaccounts", body)
        elif body["kind"] in ("Role", "RoleBinding"):
            rbac.create(api, body, f"namespaces/{namespace}/")
        elif body["kind"] in ("ClusterRole", "ClusterRoleBinding"):
            rbac.create(api, body)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token"
    token = api.request("POST", path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    folder.mkdir()
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_bytes(api.server.certificate.read_bytes())
    return ApiServer(api.server.host, api.server.port, folder, "sluicegate-console")


@pytest.fixture
def site(api: Api, namespace: str, charts: Charts, tmp_path: Path) -> Iterator[Site]:
    """Yield a console with a job that its on-call may change and its readers may read."""
    jobs, savepoints = (
        {"apiGroups": ["sluicegate.dev"], "resources": [plural]}
        for plural in ("streamingjobs", "savepoints")
    )
    oncall = [{**jobs, "verbs": ["get", "patch", "delete"]}, {**savepoints, "verbs": ["create"]}]
    grant(api, namespace, ONCALL, oncall)
    grant(api, namespace, READERS, [{**jobs, "verbs": ["get"]}])
    api.create(namespace, "clicks", spec_of())
    checkpoint = new(tmp_path / "store", "clicks/1").url
    write_start(checkpoint, DriverStart(1, {JOB: f"{namespace}/clicks"}))
    console = install(charts, api, namespace, tmp_path / "account")
    proxy = LoginProxy(SECRET, groups=(ONCALL, READERS))
    reader = Reader([str(tmp_path / "store")])
    access = Access(proxy, StreamingJobs(console))
    app = create_app(reader, hosts=["*"], refresh_s=0.0, wait_s=30.0, access=access)
    yield Site(app, api, namespace, console, checkpoint)
    reader.close()


def test_a_user_with_rights_suspends_resumes_and_restarts(site: Site) -> None:
    changes = [
        ("suspend", "suspend", True),
        ("resume", "suspend", False),
        ("restart", "restartNonce", 1),
    ]
    for action, field, value in changes:
        assert f"Done: {action}" in site.act(action).text
        assert site.spec[field] == value


def test_a_savepoint_is_created_under_the_name_that_the_page_showed(site: Site) -> None:
    (name,) = re.findall(r"--name=([\w-]+)", site.open().body)
    assert site.act("savepoint", form={"value": name}).status == 200
    assert site.api.get(site.namespace, name, SAVEPOINT)["spec"]["job"] == "clicks"


def test_a_form_that_is_sent_twice_restarts_once(site: Site) -> None:
    for _ in range(2):
        assert site.act("restart", form={"value": "1"}).status == 200
    assert site.spec["restartNonce"] == 1


@pytest.mark.parametrize("action", ["suspend", "restart", "savepoint"])
def test_the_api_server_refuses_a_user_without_the_right(site: Site, action: str) -> None:
    answer = site.act(action, "ben", READERS, form={"value": "1"})
    assert answer.status == 403
    assert 'User "ben" cannot' in answer.text
    assert "Data: nothing was changed." in answer.text
    assert site.is_unchanged


def test_a_group_of_which_the_proxy_says_nothing_gives_no_right(site: Site) -> None:
    answer = site.open("ann", "")
    assert answer.status == 403
    assert 'User "ann" cannot get' in answer.text
    assert "<form" not in answer.body


@pytest.mark.parametrize(
    "headers",
    [
        {"x_forwarded_user": "ann", "x_forwarded_groups": ONCALL},
        {**proxied("ann", ONCALL), "x_sluicegate_proxy": "a guess"},
        {"x_sluicegate_proxy": SECRET},
        proxied("system:kube-controller-manager", ONCALL),
    ],
    ids=["no proxy", "another secret", "no user", "a user of Kubernetes itself"],
)
def test_without_a_login_the_page_is_read_only_and_shows_commands(
    site: Site, headers: dict[str, str]
) -> None:
    answer = request(site.app, PAGE, **headers)
    assert answer.status == 403
    assert "<form" not in answer.body
    assert f"kubectl sluicegate -n {site.namespace} suspend clicks" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "", "origin": "https://evil.example"},
        {"sec_fetch_site": "", "origin": "null"},
        {"sec_fetch_site": ""},
    ],
)
def test_a_form_of_another_site_is_refused(site: Site, headers: dict[str, str]) -> None:
    answer = site.act("suspend", headers=headers)
    assert answer.status == 403
    assert "was not sent by a page of the console" in answer.text
    assert site.is_unchanged


def test_a_browser_that_sends_only_the_origin_may_act(site: Site) -> None:
    headers = {"sec_fetch_site": "", "origin": "http://127.0.0.1:8321"}
    assert site.act("suspend", headers=headers).status == 200


def test_the_token_of_another_user_is_refused(site: Site) -> None:
    token = re.search(r'name="token" value="(\w+)"', site.open("ben", READERS).body)
    assert token
    for given in (token[1], "", None):
        answer = site.act("suspend", form={"token": given})
        assert answer.status == 403
    assert site.is_unchanged


@pytest.mark.parametrize(
    "form",
    [{"confirmed": None}, {"action": "delete"}, {"action": "restart", "value": "-1"}],
)
def test_what_is_not_confirmed_is_not_done(site: Site, form: dict[str, str | None]) -> None:
    assert site.act("suspend", form=form).status == 422
    assert site.is_unchanged


def test_a_checkpoint_that_names_another_job_gives_no_access_to_it(site: Site) -> None:
    """A writer of a checkpoint could let the on-call suspend a job that they did not mean."""
    site.api.create(site.namespace, "payments", spec_of())
    write_start(site.checkpoint, DriverStart(2, {JOB: f"{site.namespace}/payments"}))
    answer = site.open()
    assert answer.status == 409
    assert "does not work in this checkpoint" in answer.text
    assert "<form" not in answer.body


def test_a_job_that_is_gone_is_said_in_three_parts(site: Site) -> None:
    site.api.delete(site.namespace, "clicks")
    answer = site.open()
    assert answer.status == 404
    assert "not found" in answer.text
    assert "Do: check whether the resource was deleted" in answer.text


def test_the_console_itself_may_do_nothing_and_as_a_person_only_what_it_offers(site: Site) -> None:
    jobs = f"/apis/sluicegate.dev/v1alpha1/namespaces/{site.namespace}/streamingjobs"
    ann = [("Impersonate-User", "ann"), ("Impersonate-Group", ONCALL)]
    admin = [("Impersonate-User", "ann"), ("Impersonate-Group", "system:masters")]
    assert site.console.request("GET", f"{jobs}/clicks", headers=ann, timeout_s=5.0)
    for method, path, headers in [
        ("GET", f"{jobs}/clicks", []),
        ("DELETE", f"{jobs}/clicks", ann),
        ("GET", jobs, ann),
        ("GET", f"{jobs}/clicks", admin),
        ("GET", f"/api/v1/namespaces/{site.namespace}/secrets", ann),
    ]:
        with pytest.raises(RequestRejected) as error:
            site.console.request(method, path, headers=headers, timeout_s=5.0)
        assert error.value.status == 403, (method, path, headers)


def test_a_console_of_an_older_cluster_impersonates_named_users_only(
    site: Site, charts: Charts, api: Api, tmp_path: Path
) -> None:
    values = {"constrained": False, "users": ["ann"]}
    console = install(charts, api, api.namespace(), tmp_path / "older", **values)
    path = f"/apis/sluicegate.dev/v1alpha1/namespaces/{site.namespace}/streamingjobs/clicks"
    ann, eve = (
        [("Impersonate-User", user), ("Impersonate-Group", ONCALL)] for user in ("ann", "eve")
    )
    assert console.request("GET", path, headers=ann, timeout_s=5.0)
    with pytest.raises(RequestRejected, match='cannot impersonate resource "users"'):
        console.request("GET", path, headers=eve, timeout_s=5.0)


def test_an_api_server_that_does_not_answer_is_said(site: Site, tmp_path: Path) -> None:
    silent = ApiServer("127.0.0.1", 1, site.console.account, "sluicegate-console")
    reader = Reader([str(tmp_path / "store")])
    access = Access(LoginProxy(SECRET), StreamingJobs(silent))
    app = create_app(reader, hosts=["*"], refresh_s=0.0, wait_s=30.0, access=access)
    answer = request(app, PAGE, **proxied("ann", ONCALL))
    reader.close()
    assert answer.status == 502
    assert "did not answer" in answer.text
    assert "Data: nothing was changed." in answer.text
