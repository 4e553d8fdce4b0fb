"""Command-line options generated from a job's settings, for `run`, `targets`, `verify`.

A value comes from the command line, else the environment, else the file of `--settings`, else the
default; the schema is one (`settings.schema`). What the resource of a job tells its pod wins over all
of them (`cli.told`).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

import click

from sluicegate.cli.job import PackagedJob, packaged_jobs
from sluicegate.cli.told import as_told
from sluicegate.settings.job import JobSettings
from sluicegate.settings.schema import choices_of, from_mapping, key_of, load_yaml, unknown

_FILE = "settings_file"


def options_of(job: str, settings: type[JobSettings]) -> list[click.Option]:
    """Return an option per field: its name, type, default and help; the job's own come first."""
    kinds = get_type_hints(settings)
    shared = {field.name for field in dataclasses.fields(JobSettings)}
    return [
        click.Option(
            [f"--{key_of(field.name)}"],
            type=click.Choice(choices_of(field)) if choices_of(field) else kinds[field.name],
            default=field.default,
            envvar=variable(job, field.name),
            show_default=field.default != "",
            help=field.metadata.get("help", ""),
        )
        for field in sorted(dataclasses.fields(settings), key=lambda field: field.name in shared)
    ]


def variable(job: str, name: str) -> str:
    """Return the environment variable of a job's setting."""
    return f"{_prefix(job)}{name.upper()}"


def _prefix(job: str) -> str:
    return f"SLUICEGATE_{job.upper().replace('-', '_')}_"


def check_environment(job: str, settings: type[JobSettings], others: Iterable[str]) -> None:
    """Refuse a variable with the job's prefix that is none of its settings.

    Raises:
        SettingsInvalid: there is one; a misspelt setting must not be silently left out.
    """
    known = [variable(job, field.name) for field in dataclasses.fields(settings)]
    mine = _prefix(job)
    longer = tuple(p for p in map(_prefix, others) if p.startswith(mine) and p != mine)
    for name in os.environ:
        if name.startswith(mine) and name not in known and not name.startswith(longer or "\0"):
            raise unknown(name, known, "environment")


class JobGroup(click.Group):
    """A command with a subcommand per installed job; each has the job's settings as options.

    Args:
        act: called with the job and its settings, and whatever `extra` options say.
        extra: options that every job has besides its own.
    """

    def __init__(
        self,
        name: str,
        summary: str,
        act: Callable[..., None],
        extra: tuple[click.Option, ...] = (),
    ) -> None:
        super().__init__(name, help=summary, subcommand_metavar="JOB [OPTIONS]")
        self._act, self._extra = act, extra

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(packaged_jobs())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        job = packaged_jobs().get(cmd_name)
        return None if job is None else self._command(job)

    def _command(self, job: PackagedJob) -> click.Command:
        names = {field.name for field in dataclasses.fields(job.settings)}

        def run(**given: Any) -> None:  # noqa: ANN401 - whatever the settings' types are
            check_environment(job.name, job.settings, packaged_jobs())
            own = {key: value for key, value in given.items() if key in names}
            rest = {key: value for key, value in given.items() if key not in names}
            rest.pop(_FILE)
            self._act(job, as_told(job.name, job.settings(**own)), **rest)

        params: list[click.Parameter] = [
            _settings_file(job.settings),
            *options_of(job.name, job.settings),
            *self._extra,
        ]
        return click.Command(job.name, callback=run, params=params, help=job.summary)


def _settings_file(settings: type[JobSettings]) -> click.Option:
    """Return the option whose file gives what the command line and the environment do not."""

    def read(ctx: click.Context, _param: click.Parameter, path: str | None) -> None:
        if path is not None:
            given = load_yaml(path)
            checked = from_mapping(settings, given, where=path)
            names = {str(key).replace("-", "_") for key in given}
            ctx.default_map = {name: getattr(checked, name) for name in names}

    return click.Option(
        ["--settings", _FILE],
        type=click.Path(dir_okay=False),
        is_eager=True,  # before the options whose defaults it gives
        callback=read,
        help="a YAML file of settings: a key per option, without the dashes in front",
    )


def as_arguments(settings: JobSettings, *, empty: bool = False) -> list[str]:
    """Return settings as the command line that gives them; with `empty` only those without a value."""
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return [
        f"--{key_of(name)}={value}" for name, value in values.items() if not empty or value == ""
    ]


def as_environment(job: str, settings: JobSettings) -> dict[str, str]:
    """Return settings as the environment that gives them: a url's password is in no list of processes.

    Empty ones are left out: an empty variable is none.
    """
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return {variable(job, name): str(value) for name, value in values.items() if value != ""}
