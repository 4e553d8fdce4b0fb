"""Settings have one schema for Python, files, the environment and the command line."""

from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sluicegate.cli.options import JobGroup, as_arguments, as_environment
from sluicegate.errors import SettingsInvalid
from sluicegate.packaged_job import GROUP, PackagedJob, packaged_jobs
from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.formats import SETTINGS
from sluicegate.settings.schema import load_yaml
from sluicegate_jobs.ip_count.job import IpCountSettings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delivery": "exactly_once"}, "did you mean 'exactly-once'"),
        ({"interval": "soon"}, "interval 'soon' is not a duration"),
        ({"max_concurrent": 2}, "an epoch starts where the one before ends"),
        ({"state_backend": "memory"}, "state would be lost with the driver"),
        ({"timeout_s": -1.0}, "must be at least 0"),
        ({"apply_timeout_s": 0.0}, "must be greater than 0"),
        ({"metrics_port": 70000}, "must be at most 65535"),
        ({"on_cancel": "keep"}, "must be one of retain, delete"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_invalid_value_is_rejected(given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsInvalid) as error:
        EpochSettings(**given)  # type: ignore[arg-type]
    assert message in str(error.value)


def test_an_unknown_key_is_rejected_with_the_closest_known_one() -> None:
    with pytest.raises(SettingsInvalid, match="did you mean 'min-pause-ms'"):
        SETTINGS.parse(EpochSettings, {"min-pause": 1}, "settings")


def test_keys_have_dashes_or_underscores() -> None:
    assert SETTINGS.parse(EpochSettings, {"min-pause-ms": 1}, "settings") == EpochSettings(
        min_pause_ms=1
    )
    assert SETTINGS.parse(EpochSettings, {"min_pause_ms": 1}, "settings") == EpochSettings(
        min_pause_ms=1
    )


@pytest.mark.parametrize("wrong", ["many", 1.5, True, None, [1]])
def test_a_value_of_the_wrong_type_is_rejected(wrong: object) -> None:
    with pytest.raises(SettingsInvalid, match="must be an integer"):
        SETTINGS.parse(EpochSettings, {"tolerated_failures": wrong}, "settings")


def test_settings_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("interval: 3 seconds\ntimeout-s: 30\noverlap: true\n")
    expected = EpochSettings(interval="3 seconds", timeout_s=30.0, overlap=True)
    assert SETTINGS.parse(EpochSettings, load_yaml(file), "settings") == expected


@pytest.mark.parametrize("content", ["- a list", "a: [", "\x00"])
def test_a_file_without_a_mapping_is_rejected(tmp_path: Path, content: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(content)
    with pytest.raises(SettingsInvalid):
        SETTINGS.parse(EpochSettings, load_yaml(file), "settings")


class CommandLine:
    """A command line whose job only records its settings."""

    def __init__(self) -> None:
        self.settings = IpCountSettings()
        self._group = JobGroup("run", "", self._record)

    def _record(self, _job: PackagedJob, settings: IpCountSettings) -> None:
        self.settings = settings

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        """Run the command and return its output; a SluicegateError is raised."""
        outcome = CliRunner().invoke(self._group, ["ip_count", *arguments], env=env)
        if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
            raise outcome.exception
        return outcome.output


@pytest.fixture
def command_line() -> CommandLine:
    """Return a command line."""
    return CommandLine()


def test_a_job_that_cannot_be_imported_hinders_no_other(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the job that runs is imported, which also shortens the start of its driver."""
    broken = EntryPoint("broken", "sluicegate.no_such_module:JOB", GROUP)
    installed = packaged_jobs() | {"broken": broken}
    monkeypatch.setattr("sluicegate.cli.options.packaged_jobs", lambda: installed)
    command_line.run("--interval", "3 seconds")
    assert command_line.settings.interval == "3 seconds"


def test_the_command_line_overrides_the_environment_and_the_environment_the_file(
    command_line: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("interval: 1 second\nmin-pause-ms: 1\ntimeout-s: 1\n")
    env = {"SLUICEGATE_IP_COUNT_INTERVAL": "2 seconds", "SLUICEGATE_IP_COUNT_MIN_PAUSE_MS": "2"}
    command_line.run("--settings", str(file), "--interval", "3 seconds", env=env)
    got = command_line.settings
    assert (got.interval, got.min_pause_ms, got.timeout_s) == ("3 seconds", 2, 1.0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("min-pause-ms", "many", "min-pause-ms is 'many'; it must be an integer"),
        ("timeout-s", "-1", "timeout-s is -1.0; it must be at least 0"),
        ("overlap", "perhaps", "overlap is 'perhaps'; it must be true or false"),
        ("delivery", "exactly_once", "did you mean 'exactly-once'"),
    ],
)
def test_an_invalid_option_or_variable_is_rejected_as_in_a_file(
    command_line: CommandLine, name: str, value: str, message: str
) -> None:
    variable = f"SLUICEGATE_IP_COUNT_{name.upper().replace('-', '_')}"
    with pytest.raises(SettingsInvalid, match=message):
        command_line.run(f"--{name}={value}")
    with pytest.raises(SettingsInvalid, match=message):
        command_line.run(env={variable: value})


@pytest.mark.parametrize("text", ["true", "True", "yes", "on", "1"])
def test_text_stands_for_a_boolean(command_line: CommandLine, text: str) -> None:
    command_line.run(env={"SLUICEGATE_IP_COUNT_OVERLAP": text})
    assert command_line.settings.overlap


def test_an_unknown_key_in_a_file_is_rejected(command_line: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("intervall: 1 second\n")
    with pytest.raises(SettingsInvalid, match="did you mean 'interval'"):
        command_line.run("--settings", str(file))


def test_an_unknown_variable_of_the_job_is_rejected(command_line: CommandLine) -> None:
    with pytest.raises(SettingsInvalid, match="SLUICEGATE_IP_COUNT_INTERVALL"):
        command_line.run(env={"SLUICEGATE_IP_COUNT_INTERVALL": "1 second"})


def test_an_unknown_option_is_rejected_with_the_closest_known_one(
    command_line: CommandLine,
) -> None:
    output = command_line.run("--intervall", "1 second")
    assert "No such option: --intervall (Possible options: --interval" in output


def test_a_driver_gets_the_settings_of_its_supervisor_from_the_environment(
    command_line: CommandLine,
) -> None:
    wanted = IpCountSettings(overlap=True, timeout_s=7.5, dead_letters="", mysql="mysql://u:p@h/d")
    arguments = as_arguments(wanted, empty=True)
    command_line.run(*arguments, env=as_environment("ip_count", wanted))
    assert command_line.settings == wanted
    assert not any("mysql://" in argument for argument in arguments)


def test_every_option_has_a_help_text() -> None:
    command = JobGroup("run", "", lambda *_: None).get_command(
        click.Context(click.Group()), "ip_count"
    )
    assert command is not None
    assert [p.name for p in command.params if not getattr(p, "help", "")] == []
