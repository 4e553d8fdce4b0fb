"""The pages on a phone, in a dark color scheme, by keyboard alone, and while they are made again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from sluicegate.protocol.record import Seal
from sluicegate.storage.driver_failure import DriverFailure, write_failure
from sluicegate.storage.driver_start import JOB, DriverStart, write_start
from sluicegate.storage.epoch_log import StoredEpochLog
from sluicegate.storage.lineage import read_lineage
from sluicegate.storage.object_store import LocalObjectStore
from tests.bench.console.checkpoints import name_of, write_epoch, write_fleet
from tests.integration.console.chromium import HEIGHT, WIDTH
from tests.integration.console.jobs import console

pytestmark = [pytest.mark.integration, pytest.mark.slow]

JOBS, EPOCHS = 3, 14
FULL, SEALED = name_of(0), name_of(1)
PAGES = ["/", f"/job/{FULL}", f"/job/{FULL}/epoch/{EPOCHS - 2}", f"/dead-letters/{FULL}", "/job/x"]
PHONE = {"width": 390, "height": 844}

MOST_KEYS = 120
"""More than what can have the focus on a page."""
APPEARS_MS = 15_000.0

LOWEST_CONTRAST = """
() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = numbers(color).map((of) => of / 255)
      .map((of) => (of <= 0.04045 ? of / 12.92 : ((of + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if ((numbers(color)[3] ?? 1) > 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const element = text.parentElement;
    if (!text.data.trim() || !element.checkVisibility()) continue;
    const [dark, bright] = [light(getComputedStyle(element).color), light(behind(element))]
      .sort((a, b) => a - b);
    found.push([(bright + 0.05) / (dark + 0.05), text.data.trim().slice(0, 60)]);
  }
  return found.sort((a, b) => a[0] - b[0])[0];
}
"""
"""The lowest contrast of any text with what is behind it, as WCAG 2 defines it, and that text."""

FOCUS = """
() => {
  const of = document.activeElement, style = getComputedStyle(of);
  const shown = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return { where: of.id || of.className || of.textContent.trim().slice(0, 60), shown };
}
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with jobs; the first has everything that a page can show of one."""
    root = tmp_path_factory.mktemp("devices") / "checkpoints"
    now_ms = time.time_ns() // 1_000_000
    write_fleet(root, JOBS, now_ms, epochs=EPOCHS)
    full, sealed = LocalObjectStore(root / FULL), LocalObjectStore(root / SEALED)
    write_start(full.url, DriverStart(now_ms, {JOB: "shop/orders-of-all-tenants", "parts": "4"}))
    for ended_at_ms in (now_ms - 90_000, now_ms - 60_000):
        what = f"epoch 12 is decided and sink mysql.orders does not accept it: {'x' * 200}"
        parts = what, "nothing is lost", "repair the sink", "restart in 30 s"
        write_failure(full.url, DriverFailure(ended_at_ms, 9.5, 75, "Stuck", *parts))
    lineage = read_lineage(sealed)
    assert lineage is not None
    seal = Seal("s", lineage.id, lineage.job, EPOCHS, "moved by a savepoint", now_ms)
    StoredEpochLog(sealed).create_seal(seal)
    return root


@pytest.fixture(scope="module")
def address(fleet: Path) -> Iterator[str]:
    """Yield the address of a console of the fleet."""
    with console(fleet, "") as url:
        yield url.rstrip("/")


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Yield what opens a page, in a window and color scheme of its own."""
    pages: list[Page] = []

    def open_page(path: str, scheme: str = "light", size: dict[str, int] | None = None) -> Page:
        size = size or {"width": WIDTH, "height": HEIGHT}
        page = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
        pages.append(page)
        page.goto(address + path)
        return page

    yield open_page
    for page in pages:
        page.context.close()


Visit = Callable[..., Page]


@pytest.mark.parametrize("path", PAGES)
def test_no_page_scrolls_sideways_on_a_phone(visit: Visit, path: str) -> None:
    page = visit(path, size=PHONE)
    width = page.evaluate("document.scrollingElement.scrollWidth")
    assert width <= PHONE["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_text_can_be_read_in_each_color_scheme(visit: Visit, path: str, scheme: str) -> None:
    page = visit(path, scheme)
    page.evaluate("document.querySelectorAll('details').forEach((box) => (box.open = true))")
    contrast, text = page.evaluate(LOWEST_CONTRAST)
    assert contrast >= 4.5, text


def test_the_background_follows_the_color_scheme(visit: Visit) -> None:
    colors = {
        scheme: visit("/", scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    }
    assert colors == {"light": "rgb(251, 251, 250)", "dark": "rgb(20, 23, 26)"}


def test_a_job_and_its_epochs_are_reached_by_keyboard_alone(visit: Visit, address: str) -> None:
    page = visit("/")
    _tab_to(page, f"job-{FULL}")
    page.keyboard.press("Enter")
    _expect_loaded(page, f"{address}/job/{FULL}")
    _tab_to(page, f"bar-{FULL}-{EPOCHS - 2}")
    page.keyboard.press("Enter")
    _expect_loaded(page, f"{address}/job/{FULL}/epoch/{EPOCHS - 2}")
    page.keyboard.press("ArrowLeft")
    _expect_loaded(page, f"{address}/job/{FULL}/epoch/{EPOCHS - 3}")
    page.keyboard.press("ArrowRight")
    _expect_loaded(page, f"{address}/job/{FULL}/epoch/{EPOCHS - 2}")


def test_each_place_that_can_have_the_focus_shows_it(visit: Visit) -> None:
    page = visit(f"/job/{FULL}")
    hidden = []
    for _ in range(MOST_KEYS):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break  # after the last place the browser itself has the focus
        focus = page.evaluate(FOCUS)
        hidden += [] if focus["shown"] else [focus["where"]]
    assert hidden == []


@pytest.mark.parametrize(
    "element", ['[id="bar-{job}-{last}"]', "#failures + details summary", "#signs a", ".scroll"]
)
def test_the_focus_survives_that_the_page_is_made_again(
    visit: Visit, fleet: Path, element: str
) -> None:
    store = LocalObjectStore(fleet / name_of(2))
    write_failure(store.url, DriverFailure(1, 9.5, 75, "Stuck"))
    lineage, last = read_lineage(store), StoredEpochLog(store).newest()
    assert lineage is not None
    assert last is not None
    page = visit(f"/job/{name_of(2)}")
    place = page.locator(element.format(job=name_of(2), last=last)).first
    place.focus()
    write_epoch(store, lineage, last + 1, time.time_ns() // 1_000_000)
    expect(page.locator("#ledger")).to_contain_text(f"to {last + 1}", timeout=APPEARS_MS)
    expect(place).to_be_focused()


def _expect_loaded(page: Page, url: str) -> None:
    """Wait until a page is loaded: before, its script does not see a key."""
    expect(page).to_have_url(url)
    page.wait_for_load_state()


def _tab_to(page: Page, id_: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(MOST_KEYS):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == id_:
            return
    raise AssertionError(f"no Tab leads to {id_}")
