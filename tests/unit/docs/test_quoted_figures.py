"""The figures of the long runs and of the soak that pages quote are those of the generated pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from infra.workspace import CHECKOUT
from tests.robustness.failpoints.actors import ACTORS
from tests.robustness.failpoints.fault_plan import ANY_MOMENT, all_failpoints
from tests.robustness.validate.invariants import LAWS

README: Final = CHECKOUT / "README.md"
ROBUSTNESS: Final = CHECKOUT / "docs" / "operations" / "robustness.md"
LONG_RUNS: Final = CHECKOUT / "docs" / "reference" / "long-runs.md"
MUTATION: Final = CHECKOUT / "docs" / "operations" / "mutation-testing.md"
SOAK: Final = CHECKOUT / "docs" / "reference" / "soak.md"


def words(page: Path) -> str:
    """Return a page as one line."""
    return " ".join(page.read_text(encoding="utf-8").split())


def number(pattern: str, page: Path) -> int:
    """Return the number that the only group of a pattern matches; the page must have it once."""
    (found,) = re.findall(pattern, words(page))
    return int(found.replace(",", ""))


def column(page: Path, head: str) -> list[str]:
    """Return the cells of a column of the first table that has it."""
    lines = page.read_text(encoding="utf-8").splitlines()
    tables = [[cell.strip() for cell in line.split("|")] for line in lines]
    first = next(n for n, cells in enumerate(tables) if head in cells)
    end = next(n for n in range(first, len(lines) + 1) if not lines[n : n + 1] or not lines[n])
    place = tables[first].index(head)
    return [cells[place] for cells in tables[first + 2 : end]]


def total(page: Path, head: str) -> int:
    """Return the sum of a column."""
    return sum(int(cell.replace(",", "")) for cell in column(page, head))


def test_the_readme_has_the_faults_and_the_rows_of_the_long_runs() -> None:
    faults = number(r"\[([\d,]+) so far\]\(docs/reference/long-runs.md\)", README)
    assert faults == number(r"([\d,]+) faults, ", LONG_RUNS) == total(LONG_RUNS, "faults")
    rows = number(r"no row of ([\d,]+) lost or repeated", README)
    assert rows == total(LONG_RUNS, "rows judged")
    assert "**No anomaly in these runs**" in words(LONG_RUNS)


def test_the_pages_have_the_kills_and_the_records_of_the_soak() -> None:
    kills = number(r"([\d,]+) pods killed", SOAK)
    assert kills == total(SOAK, "times")
    assert kills == number(r"killed \[([\d,]+) pods in two hours\]", README)
    assert kills == number(r"([\d,]+) pods were killed in two hours", ROBUSTNESS)
    assert number(r"MINUTES=(\d+) ", SOAK) == 120
    records = number(r"both jobs were exact over ([\d,]+) records", ROBUSTNESS)
    assert records == total(SOAK, "records")
    assert set(column(SOAK, "`verify`")) == {"exact"}


def test_the_page_of_the_long_run_has_the_numbers_of_its_failpoints_and_actors() -> None:
    text = words(ROBUSTNESS)
    named = [point for point, _ in all_failpoints() if point != ANY_MOMENT]
    assert set(re.findall(r"(\d+) failpoints", text)) == {str(len(named))}
    assert number(r"\"any moment\", and (\d+) actors", ROBUSTNESS) == len(ACTORS)
    assert [point for point in named if f"`{point}`" not in text] == []


def test_the_page_of_the_simulation_has_its_laws() -> None:
    lines = MUTATION.read_text(encoding="utf-8").splitlines()
    assert [f"| {law} | {text} |" for law, text in LAWS.items()] == lines[
        lines.index("| law | |") + 2 :
    ][: len(LAWS)]
