"""Somebody who has never seen the job: reads the console's pages and clicks at most twice."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.e2e.ladder import Ladder
from tests.integration.console.chromium import HEIGHT, WIDTH
from tests.integration.console.png import smaller

SCREENSHOTS_VARIABLE = "SLUICEGATE_SCREENSHOTS"
"""Variable with the folder for the screenshots; without it they are in the folder of the test."""

NO_SINK = re.compile(
    r"Bound by (?:the plan|its state|its source|Spark's planning|the checkpoint's store)|It waits for"
)
"""The verdict on a job whose sinks are quick while they work: which of these it is, the machine decides."""

MOST_CLICKS = 2
_APPEARS_MS = 15_000.0
"""How long a fault may take to appear on a page that is open; the console reads every half second."""


@dataclass(frozen=True)
class Answers:
    """What the job's page answers to the five questions; text or a pattern of it.

    Args:
        healthy: the state.
        epochs: for each sink whether its newest epoch is in doubt, None if it may be at times.
        slow: what bounds the job; by default no sink.
        restarted: why the last driver failed.
        refused: the dead letters.
    """

    healthy: str
    epochs: Mapping[str, bool | None]
    slow: str | re.Pattern[str] = NO_SINK
    restarted: str = "Restarts: no failure of a driver is recorded."
    refused: str = "Dead letters: none in the last"


class Stranger:
    """Reads pages of a console, from its start page on.

    Args:
        page: a page of the browser.
        url: the address of the console.
        job: the key of the job with the fault.
        newest: returns the newest epoch in the log of that job.
        folder: where screenshots go unless the environment names a folder.
    """

    def __init__(
        self, page: Page, url: str, job: str, newest: Callable[[], int | None], folder: Path
    ) -> None:
        self._page, self._job, self._newest = page, job, newest
        self._folder = Path(os.environ.get(SCREENSHOTS_VARIABLE) or folder)
        self._clicks = 0
        page.goto(url)

    def finds_the_answers(self, answers: Answers) -> None:
        """Read the state on the start page, open the job, and read every other answer on its page."""
        self.reads_state(answers.healthy)
        self.opens_the_job()
        self.reads(answers.slow, "#verdict")
        self.reads(answers.restarted, "#signs")
        self.reads(answers.refused, "#signs")
        self._reads_who_has_which_epoch(answers.epochs)

    def _reads_who_has_which_epoch(self, in_doubt: Mapping[str, bool | None]) -> None:
        """Check that the page has the newest epoch of the log, and whether each sink has it."""
        deadline = time.monotonic() + _APPEARS_MS / 1000
        while True:
            before = self._newest()
            rungs = Ladder.of(self._page.content()).rungs
            decided = rungs["decided"].epoch if "decided" in rungs else None
            if decided in {before, self._newest()}:
                break  # the page follows a job that runs, and so does the log
            assert time.monotonic() < deadline, f"{before} is decided, the page says {decided}"
            time.sleep(0.1)
        shown = {sink: rungs[sink] for sink in in_doubt}
        assert {rung.epoch for rung in shown.values()} == {decided}
        for sink, rung in shown.items():
            assert in_doubt[sink] in {rung.in_doubt, None}, sink

    def reads(self, text: str | re.Pattern[str], where: str = "main") -> None:
        """Check that a visible element has the text, now or soon: an open page follows its job."""
        expect(self._page.locator(where).first).to_contain_text(text, timeout=_APPEARS_MS)

    def does_not_read(self, text: str) -> None:
        """Check that the text is nowhere in the page, hidden parts included."""
        assert text not in self._page.content()

    def row_of_job(self) -> Locator:
        """Return the row of the job on the start page."""
        return self._page.locator("#jobs tbody tr").filter(has_text=self._job)

    def reads_state(self, state: str) -> None:
        """Check the state of the job on the start page, before the first click."""
        assert not self._clicks
        expect(self.row_of_job().locator(".badge")).to_have_text(state, timeout=_APPEARS_MS)

    def opens_the_job(self) -> None:
        """Click the job on the start page."""
        self._click(self.row_of_job().get_by_role("link").first)

    def opens(self, what: str) -> None:
        """Click what a CSS selector finds, the last of several."""
        self._click(self._page.locator(what).last)

    def saves_a_screenshot(self, name: str, *, from_the: str = "", height: int = HEIGHT) -> None:
        """Save what is seen of the page, from an element on if one is named."""
        self._folder.mkdir(parents=True, exist_ok=True)
        top = 0.0
        if from_the:
            box = self._page.locator(from_the).first.bounding_box()
            assert box is not None
            top = max(0.0, box["y"] + self._page.evaluate("scrollY") - 12)
        self._page.mouse.move(0, 0)
        clip = {"x": 0.0, "y": top, "width": float(WIDTH), "height": float(height)}
        png = self._page.screenshot(full_page=True, clip=clip)  # type: ignore[arg-type]
        blank = self._page.context.new_page()  # the console's allows no images but its own
        (self._folder / f"{name}.png").write_bytes(smaller(blank, png))

    def _click(self, what: Locator) -> None:
        self._clicks += 1
        assert self._clicks <= MOST_CLICKS, "a stranger would have given up"
        what.click()
