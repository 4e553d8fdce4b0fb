"""Fixtures of the console's acceptance tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from infra.local_services import Services
from infra.toolchain.chromium import missing_reason
from tests.integration.console.chromium import HEIGHT, WIDTH, chromium
from tests.integration.console.jobs import Stage, console
from tests.integration.console.stranger import Stranger

Visit = Callable[[str], Stranger]


@pytest.fixture(scope="module")
def stage(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Return where the jobs of a file run."""
    return Stage(services, tmp_path_factory.mktemp("console") / "checkpoints")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield the system's Chromium, or skip the test if this machine has none."""
    if reason := missing_reason():
        pytest.skip(reason)
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def url(stage: Stage) -> Iterator[str]:
    """Yield the address of a console of the jobs of a file."""
    stage.checkpoints.mkdir()
    with console(stage.checkpoints, stage.services.kafka.bootstrap) as address:
        yield address


@pytest.fixture
def visit(browser: Browser, url: str, stage: Stage, tmp_path: Path) -> Iterator[Visit]:
    """Yield what opens the start page for somebody who looks for a job."""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
    yield lambda job: Stranger(context.new_page(), url, job, partial(stage.newest, job), tmp_path)
    context.close()
