"""A session that is created while the modules of a job are imported."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import Mock

import pytest

from sluicegate import cli
from sluicegate.errors import SettingsInvalid
from sluicegate.spark import session


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Return what stands for the creation of a session, which needs a JVM."""
    creation = Mock()
    monkeypatch.setattr(session, "session", creation)
    return creation


def test_a_session_that_was_begun_is_created_once(created: Mock) -> None:
    session.begin_session("clicks")
    assert session.created_session("clicks") is created.return_value
    created.assert_called_once_with("clicks")


def test_the_error_of_a_session_is_raised_where_it_is_needed(created: Mock) -> None:
    error = SettingsInvalid("spark.speculation is on", data="nothing was started", do="remove it")
    created.side_effect = error
    session.begin_session("clicks")
    with pytest.raises(SettingsInvalid) as raised:
        session.created_session("clicks")
    assert raised.value is error


_IMPORT_AFTER_BEGIN = """
import importlib, sys
from sluicegate.spark import session
session.session = lambda name: None
session.begin_session("clicks")
imported = set(sys.modules)
importlib.import_module("pyspark.testing.utils")
print(*(set(sys.modules) - imported))
"""


def test_what_a_session_imports_is_imported_before_the_job() -> None:
    """If a session imports pandas while a job imports a submodule of it, pandas stays half imported."""
    command = [sys.executable, "-c", _IMPORT_AFTER_BEGIN]
    assert subprocess.check_output(command, text=True).split() == []


@pytest.mark.parametrize(
    ("arguments", "begun"),
    [
        (["run", "clicks", "--once", "--topic=hits"], ["clicks"]),
        (["run", "clicks"], []),
        (["run", "--once"], []),
        (["run", "clicks", "--once", "--help"], []),
        (["verify", "clicks"], []),
        ([], []),
    ],
)
def test_only_a_driver_begins_a_session_while_the_command_line_is_read(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], begun: list[str]
) -> None:
    names: list[str] = []
    monkeypatch.setattr(session, "begin_session", names.append)
    monkeypatch.setattr("sluicegate.cli.app.app", lambda: None)
    monkeypatch.setattr(sys, "argv", ["sluicegate", *arguments])
    cli.main()
    assert names == begun
