"""A confirmed action reaches the StreamingJob that its page showed, or none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sluicegate.console import reader as reader_module
from sluicegate.console.app import LOCAL_NAMES, Access, create_app
from sluicegate.console.cluster import StreamingJobs
from sluicegate.console.identity import LoginProxy, Person
from sluicegate.console.reader import Reader
from sluicegate.deployment.api_server import ApiServer
from sluicegate.deployment.job_actions import JobName
from sluicegate.storage.driver_start import JOB, DriverStart, write_start
from tests.unit.console.browser import Answer, new, post, request

SECRET = "the proxy's own secret"
PAGE = "/actions/orders/1"
ANN = {
    "x_sluicegate_proxy": SECRET,
    "x_forwarded_user": "ann",
    "sec_fetch_site": "same-origin",
}


class RecordedJobs(StreamingJobs):
    """StreamingJobs that exist in every namespace, and remember what changed them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(ApiServer("127.0.0.1", 1, folder, "test"))
        self.changed: list[str] = []

    def read(self, name: JobName, person: Person) -> dict[str, Any]:
        del person
        return {"metadata": {"name": name.name}, "spec": {}, "status": {}}

    def change(self, name: JobName, spec: Mapping[str, Any], person: Person) -> None:
        del spec, person
        self.changed.append(str(name))


class Site:
    """A console of two volumes, each of which has a checkpoint `orders/1` of another team."""

    def __init__(self, root: Path) -> None:
        for team in ("team-a", "team-b"):
            store = new(root, f"{team}/orders/1")
            write_start(store.url, DriverStart(1, {JOB: f"{team}/orders"}))
        self.root = root
        self.jobs = RecordedJobs(root)
        self.reader = Reader([str(root / "team-a"), str(root / "team-b")])
        access = Access(LoginProxy(SECRET), self.jobs)
        self.app = create_app(self.reader, hosts=LOCAL_NAMES, refresh_s=0.0, access=access)

    def suspend(self, page: Answer) -> Answer:
        """Send the form of a page that suspends its job."""
        _, _, offer = page.body.partition('id="offer-suspend"')
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', offer.partition("</form>")[0]))
        return post(self.app, PAGE, {**fields, "confirmed": "on"}, **ANN)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(reader_module, "_FIND_EVERY_S", 0.0)
    site = Site(tmp_path)
    yield site
    site.reader.close()


def test_a_confirmed_action_reaches_the_job_of_its_page(site: Site) -> None:
    assert "Done: suspend" in site.suspend(request(site.app, PAGE, **ANN)).text
    assert site.jobs.changed == ["team-a/orders"]


def test_a_form_changes_no_job_whose_checkpoint_got_the_key_of_another(site: Site) -> None:
    """If a checkpoint is deleted, another one with the same path gets its key, and thereby its page."""
    page = request(site.app, PAGE, **ANN)
    (site.root / "team-a" / "orders").rename(site.root / "deleted")
    answer = site.suspend(page)
    assert answer.status == 409
    assert "this form was for another job" in answer.text
    assert "now that of StreamingJob team-b/orders" in answer.text
    assert "Data: nothing was changed." in answer.text
    assert site.jobs.changed == []


def test_a_form_changes_no_job_that_the_checkpoint_names_only_since_then(site: Site) -> None:
    page = request(site.app, PAGE, **ANN)
    write_start(str(site.root / "team-a" / "orders" / "1"), DriverStart(2, {JOB: "team-c/orders"}))
    assert site.suspend(page).status == 409
    assert site.jobs.changed == []
