"""One schema: from Python, a file, the environment and the command line alike."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sluicegate.cli.job import PackagedJob
from sluicegate.cli.options import JobGroup, as_arguments, as_environment
from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.schema import from_mapping, read_file
from sluicegate_jobs.ip_count import JOB, IpCountSettings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"delivery": "exactly_once"}, "did you mean 'exactly-once'"),
        ({"interval": "soon"}, "interval 'soon' is no time"),
        ({"max_concurrent": 2}, "an epoch starts where the one before ends"),
        ({"state_backend": "memory"}, "state would be gone with the driver"),
        ({"timeout_s": -1.0}, "must be at least 0"),
        ({"apply_timeout_s": 0.0}, "must be above 0"),
        ({"on_cancel": "keep"}, "use one of: retain, delete"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_value_that_cannot_work_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        EpochSettings(**given)  # type: ignore[arg-type]
    assert said in str(refused.value)


def test_an_unknown_key_is_refused_with_the_nearest_known() -> None:
    with pytest.raises(SettingsInvalid, match="did you mean 'min-pause-ms'"):
        from_mapping(EpochSettings, {"min-pause": 1})


def test_keys_have_dashes_or_underscores() -> None:
    assert from_mapping(EpochSettings, {"min-pause-ms": 1}) == EpochSettings(min_pause_ms=1)
    assert from_mapping(EpochSettings, {"min_pause_ms": 1}) == EpochSettings(min_pause_ms=1)


@pytest.mark.parametrize("wrong", ["many", 1.5, True, None, [1]])
def test_a_value_of_another_type_is_refused(wrong: object) -> None:
    with pytest.raises(SettingsInvalid, match="no int"):
        from_mapping(EpochSettings, {"tolerated_failures": wrong})


def test_a_file_gives_settings(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("interval: 3 seconds\ntimeout-s: 30\noverlap: true\n")
    expected = EpochSettings(interval="3 seconds", timeout_s=30.0, overlap=True)
    assert read_file(EpochSettings, file) == expected


@pytest.mark.parametrize("content", ["- a list", "a: [", "\x00"])
def test_a_file_that_holds_no_settings_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(content)
    with pytest.raises(SettingsInvalid):
        read_file(EpochSettings, file)


class Asked:
    """A command line whose job only remembers its settings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = IpCountSettings()
        self._group = JobGroup("run", "", self._take)
        jobs: dict[str, PackagedJob] = {"ip_count": JOB}
        monkeypatch.setattr("sluicegate.cli.options.packaged_jobs", lambda: jobs)

    def _take(self, _job: PackagedJob, settings: IpCountSettings) -> None:
        self.settings = settings

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        """Run the command; return what it printed. An error of ours is raised."""
        outcome = CliRunner().invoke(self._group, ["ip_count", *arguments], env=env)
        if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
            raise outcome.exception
        return outcome.output


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Give a command line."""
    return Asked(monkeypatch)


def test_the_command_line_beats_the_environment_and_that_the_file(
    asked: Asked, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("interval: 1 second\nmin-pause-ms: 1\ntimeout-s: 1\n")
    env = {"SLUICEGATE_IP_COUNT_INTERVAL": "2 seconds", "SLUICEGATE_IP_COUNT_MIN_PAUSE_MS": "2"}
    asked.run("--settings", str(file), "--interval", "3 seconds", env=env)
    got = asked.settings
    assert (got.interval, got.min_pause_ms, got.timeout_s) == ("3 seconds", 2, 1.0)


def test_an_unknown_key_of_a_file_is_refused(asked: Asked, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("intervall: 1 second\n")
    with pytest.raises(SettingsInvalid, match="did you mean 'interval'"):
        asked.run("--settings", str(file))


def test_an_unknown_variable_of_the_job_is_refused(asked: Asked) -> None:
    with pytest.raises(SettingsInvalid, match="SLUICEGATE_IP_COUNT_INTERVALL"):
        asked.run(env={"SLUICEGATE_IP_COUNT_INTERVALL": "1 second"})


def test_an_unknown_option_is_refused_with_the_nearest_known(asked: Asked) -> None:
    said = asked.run("--intervall", "1 second")
    assert "No such option: --intervall (Possible options: --interval" in said


def test_the_environment_of_a_driver_gives_it_the_settings_of_its_supervisor(asked: Asked) -> None:
    wanted = IpCountSettings(overlap=True, timeout_s=7.5, dead_letters="", mysql="mysql://u:p@h/d")
    arguments = as_arguments(wanted, empty=True)
    asked.run(*arguments, env=as_environment("ip_count", wanted))
    assert asked.settings == wanted
    assert not any("mysql://" in argument for argument in arguments)


def test_every_option_has_a_help_text() -> None:
    command = JobGroup("run", "", lambda *_: None).get_command(
        click.Context(click.Group()), "ip_count"
    )
    assert command is not None
    assert [p.name for p in command.params if not getattr(p, "help", "")] == []
