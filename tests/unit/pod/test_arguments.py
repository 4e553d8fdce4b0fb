"""The command line of a driver's container."""

from __future__ import annotations

import pytest

from sluicegate.pod.arguments import Main, parse
from sluicegate.protocol.errors import SettingsInvalid


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["--module", "a.b"], Main("a.b", "", ())),
        (["--module", "a.b", "--"], Main("a.b", "", ())),
        (
            ["--module", "sluicegate.cli", "--", "run", "ip_count", "--once"],
            Main("sluicegate.cli", "", ("run", "ip_count", "--once")),
        ),
        (["--file", "/job.py", "--", "a", "--", "-b"], Main("", "/job.py", ("a", "--", "-b"))),
    ],
)
def test_a_main_and_its_arguments(given: list[str], wanted: Main) -> None:
    assert parse(given) == wanted


@pytest.mark.parametrize(
    "given", [[], ["--"], ["--module"], ["--module", ""], ["a.b"], ["--module", "a", "b"]]
)
def test_a_line_that_names_no_main_is_refused(given: list[str]) -> None:
    with pytest.raises(SettingsInvalid, match="names no main"):
        parse(given)
