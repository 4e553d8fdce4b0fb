"""How drivers of a job ended, and why."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from sluicegate.console.drivers import ended_drivers
from sluicegate.console.model import JobFacts
from sluicegate.storage.driver_end import DriverEnd, Why, write_end
from sluicegate.storage.driver_failure import RETAINED, DriverFailure, write_failure
from sluicegate.storage.driver_start import DriverStart, write_start
from tests.unit.console.browser import finished, request
from tests.unit.console.builders import job


def started(*times_s: int) -> JobFacts:
    """Return a job whose drivers started at some times."""
    return replace(job(), starts=tuple(DriverStart(1000 * at, {}) for at in reversed(times_s)))


def failed(at_s: float, ran_s: float, kind: str = "Stuck", code: int = 75) -> DriverFailure:
    return DriverFailure(int(1000 * at_s), ran_s, code, kind)


def titles(facts: JobFacts) -> list[str]:
    return [of.title for of in ended_drivers(facts)]


def test_failures_and_orderly_ends_are_listed_newest_first() -> None:
    facts = replace(
        started(10, 30, 50),
        failures=(failed(40, 11),),
        ends=(DriverEnd(20_000, 11.0, Why.STOPPED), DriverEnd(60_000, 11.0, Why.FINISHED)),
    )
    assert titles(facts) == ["finished", "Stuck", "stopped"]


def test_a_driver_that_was_killed_is_listed_with_its_signal() -> None:
    (killed,) = ended_drivers(replace(started(10), failures=(failed(20, 11, "", -9),)))
    assert killed.title == "killed by signal 9"
    assert killed.what.startswith("The driver wrote no reason: it was killed")


def test_a_driver_without_a_recorded_end_is_listed_once_another_one_has_started() -> None:
    (killed,) = ended_drivers(started(10, 30))
    assert (killed.title, killed.ended_at_ms, killed.ran_ms) == ("no end recorded", 30_000, None)
    assert ended_drivers(started(10)) == []


@pytest.mark.parametrize(
    ("failures", "without_end"),
    [
        ([failed(20, 11), failed(40, 11)], 0),
        ([failed(40, 11)], 1),  # the first was killed
        ([failed(40, 31)], 1),  # the second waited as a standby while the first ran
        ([failed(5, 1), failed(20, 11)], 0),  # one failed before its query started
        ([failed(40, 31, "Fenced")], 0),  # the first is a zombie, and the second runs
    ],
)
def test_an_end_belongs_to_the_driver_that_ran_then(
    failures: list[DriverFailure], without_end: int
) -> None:
    facts = replace(started(10, 30), failures=tuple(failures))
    assert titles(facts).count("no end recorded") == without_end


def test_nothing_is_said_about_drivers_whose_end_may_have_been_pruned() -> None:
    later = tuple(failed(100 + n, 0.5) for n in range(RETAINED))
    assert "no end recorded" not in titles(replace(started(10, 30, 40), failures=later))
    assert titles(replace(started(10, 30, 40), failures=later[1:])).count("no end recorded") == 2


def test_the_page_of_a_job_says_why_a_driver_ended_in_order(
    tmp_path: Path, console: ASGIApp
) -> None:
    store = finished(tmp_path, "ended", 1)
    write_end(store.url, DriverEnd(1_000, 2.5, Why.STOPPED))
    shown = request(console, "/job/ended").text
    assert "A signal requested its end, and it ended after an epoch" in shown
    assert "Every decided epoch is in every sink." in shown


def test_a_reason_of_a_newer_version_is_shown_as_it_is() -> None:
    (ended,) = ended_drivers(replace(started(10), ends=(DriverEnd(20_000, 11.0, "drained"),)))
    assert ended.title == "drained"
    assert "Every decided epoch" not in ended.data


def test_one_record_that_cannot_be_read_hides_no_other_and_is_still_an_end(
    tmp_path: Path, console: ASGIApp
) -> None:
    store = finished(tmp_path, "one", 1)
    for at_s in (10, 30, 50):
        write_start(store.url, DriverStart(1000 * at_s, {"interval": f"{at_s} seconds"}))
    write_end(store.url, DriverEnd(20_000, 11.0, Why.STOPPED))
    write_failure(store.url, failed(5, 1))
    store.create(f"ends/{40_000:015d}", b"torn")
    store.create(f"failures/{60_000:015d}", b"torn")
    store.create(f"starts/{45_000:015d}", b"torn")
    page = request(console, "/job/one").text
    shown = page.partition("Ended drivers")[2]
    for title in ("record not readable", "stopped", "Stuck"):
        assert title in shown
    assert "no end recorded" not in page, "each driver but the last has one"
    assert re.search(r"Failed : its last failed driver ended [^:]* ago: record not readable", page)
    for kind, count in (("failures", 2), ("ends", 2), ("starts", 4)):
        assert f"Note: 1 of {count} {kind} of drivers cannot be read" in page
    assert "interval 30 seconds 50 seconds" in page
