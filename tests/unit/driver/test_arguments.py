"""The command line of a driver's container."""

from __future__ import annotations

import pytest

from sluicegate.driver.main import UserMain, parse_arguments
from sluicegate.errors import SettingsInvalid


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["--module", "a.b"], UserMain("a.b", "", ())),
        (["--module", "a.b", "--"], UserMain("a.b", "", ())),
        (
            ["--module", "sluicegate.cli", "--", "run", "ip_count", "--once"],
            UserMain("sluicegate.cli", "", ("run", "ip_count", "--once")),
        ),
        (["--file", "/job.py", "--", "a", "--", "-b"], UserMain("", "/job.py", ("a", "--", "-b"))),
    ],
)
def test_a_command_line_names_a_main_and_its_arguments(given: list[str], wanted: UserMain) -> None:
    assert parse_arguments(given) == wanted


@pytest.mark.parametrize(
    "given", [[], ["--"], ["--module"], ["--module", ""], ["a.b"], ["--module", "a", "b"]]
)
def test_a_command_line_without_a_main_is_rejected(given: list[str]) -> None:
    with pytest.raises(SettingsInvalid, match="names no main"):
        parse_arguments(given)
