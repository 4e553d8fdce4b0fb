"""Command-line options generated from the settings of a job, for `run`, `targets` and `verify`.

A value comes from the command line, else from the environment, else from the file of `--settings`,
else it is the default. The environment of a driver (`deployment.environment`) overrides them all.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, get_type_hints

import click

from sluicegate.deployment.environment import DriverEnvironment, DriverVariable
from sluicegate.errors import SettingsInvalid
from sluicegate.packaged_job import JobSettings, PackagedJob, packaged_jobs
from sluicegate.settings.formats import SETTINGS
from sluicegate.settings.schema import NOTHING_STARTED, choices_of, key_of, load_yaml

log = logging.getLogger("sluicegate.environment")

_TOPIC, _TABLE = "dead_letters", "dead_letter_table"
"""Settings of jobs that have dead letters."""

S = TypeVar("S", bound=JobSettings)


def apply_environment(job: str, settings: S) -> S:
    """Return a job's settings with those of the driver's environment in their place.

    Applied before the job is built, because a job may use its settings outside of `epochs()`.

    Raises:
        SettingsInvalid: the resulting settings are invalid, or the environment names a dead-letter
            topic and the job has no dead letters.
    """
    environment = DriverEnvironment.read()
    checkpoint, settings = environment.override(settings.checkpoint, settings)
    settings = dataclasses.replace(settings, checkpoint=checkpoint)
    topic = environment.dead_letter_topic
    if not topic:
        return settings
    names = {field.name for field in dataclasses.fields(settings)}
    if _TOPIC not in names:
        raise SettingsInvalid(
            f"job {job} has no dead letters, but {DriverVariable.DEAD_LETTER_TOPIC} names topic {topic} "
            "for them",
            data=NOTHING_STARTED,
            do="remove spec.deadLetterTopic",
        )
    changes: dict[str, Any] = {_TOPIC: topic, **({_TABLE: ""} if _TABLE in names else {})}
    log.info("overridden by the environment: dead letters go to topic %s", topic)
    return dataclasses.replace(settings, **changes)


_FILE = "settings_file"


def options_of(job: str, settings: type[JobSettings]) -> list[click.Option]:
    """Return one option per field; the fields that the job adds come first."""
    kinds = get_type_hints(settings)
    shared = {field.name for field in dataclasses.fields(JobSettings)}
    return [
        click.Option(
            [f"--{key_of(field.name)}"],
            type=str,  # SETTINGS converts and validates, as it does for files
            metavar=_metavar(choices_of(field), kinds[field.name]),
            default=field.default,
            envvar=variable(job, field.name),
            show_default=field.default != "",
            help=field.metadata.get("help", ""),
        )
        for field in sorted(dataclasses.fields(settings), key=lambda field: field.name in shared)
    ]


def _metavar(choices: tuple[str, ...], kind: type[object]) -> str:
    names = {int: "INTEGER", float: "FLOAT", bool: "BOOLEAN"}
    return f"[{'|'.join(choices)}]" if choices else names.get(kind, "TEXT")


def variable(job: str, name: str) -> str:
    """Return the name of the environment variable for a setting of a job."""
    return f"{_prefix(job)}{name.upper()}"


def _prefix(job: str) -> str:
    return f"SLUICEGATE_{job.upper().replace('-', '_')}_"


def check_environment(job: str, settings: type[JobSettings], others: Iterable[str]) -> None:
    """Reject a variable that has the job's prefix but is not one of its settings.

    Raises:
        SettingsInvalid: there is one. A misspelled setting must not be ignored silently.
    """
    known = [variable(job, field.name) for field in dataclasses.fields(settings)]
    prefix = _prefix(job)
    longer = tuple(p for p in map(_prefix, others) if p.startswith(prefix) and p != prefix)
    for name in os.environ:
        if name.startswith(prefix) and name not in known and not name.startswith(longer or "\0"):
            raise SETTINGS.unknown(name, known, "environment")


class JobGroup(click.Group):
    """A command with one subcommand per installed job, whose settings are the options.

    Args:
        name: the name of the command.
        summary: its help text.
        action: called with the job, its settings and the values of the `extra` options.
        extra: options that are not settings.
    """

    def __init__(
        self,
        name: str,
        summary: str,
        action: Callable[..., None],
        extra: tuple[click.Option, ...] = (),
    ) -> None:
        super().__init__(name, help=summary, subcommand_metavar="JOB [OPTIONS]")
        self._action, self._extra = action, extra

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(packaged_jobs())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = packaged_jobs().get(cmd_name)
        return None if entry is None else self._command(entry.load())

    def _command(self, job: PackagedJob) -> click.Command:
        names = {field.name for field in dataclasses.fields(job.settings)}

        def run(**values: Any) -> None:  # noqa: ANN401 - settings of any type
            check_environment(job.name, job.settings, packaged_jobs())
            own = {key: value for key, value in values.items() if key in names}
            rest = {key: value for key, value in values.items() if key not in names}
            rest.pop(_FILE)
            settings = SETTINGS.parse(job.settings, own, "command line or environment")
            self._action(job, apply_environment(job.name, settings), **rest)

        params: list[click.Parameter] = [
            _settings_file(job.settings),
            *options_of(job.name, job.settings),
            *self._extra,
        ]
        return click.Command(job.name, callback=run, params=params, help=job.summary)


def _settings_file(settings: type[JobSettings]) -> click.Option:
    """Return the option for a settings file, which provides defaults for all other options."""

    def read(ctx: click.Context, _param: click.Parameter, path: str | None) -> None:
        if path is not None:
            values = load_yaml(path)
            parsed = SETTINGS.parse(settings, values, path)
            names = {str(key).replace("-", "_") for key in values}
            ctx.default_map = {name: getattr(parsed, name) for name in names}

    return click.Option(
        ["--settings", _FILE],
        type=click.Path(dir_okay=False),
        is_eager=True,  # before the options whose defaults it provides
        callback=read,
        help="YAML file of settings: one key per option, without the leading dashes.",
    )


def as_arguments(settings: JobSettings, *, empty: bool = False) -> list[str]:
    """Return settings as command-line options; with `empty` only those without a value."""
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return [
        f"--{key_of(name)}={value}" for name, value in values.items() if not empty or value == ""
    ]


def as_environment(job: str, settings: JobSettings) -> dict[str, str]:
    """Return settings as environment variables, so that no process list shows a password.

    Empty ones are left out, because an empty variable counts as not set.
    """
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return {variable(job, name): str(value) for name, value in values.items() if value != ""}
