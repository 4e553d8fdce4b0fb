"""Command-line options generated from a job's settings dataclass, for `run`, `targets`, `verify`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, get_type_hints

import click

from sluicegate.cli.job import PackagedJob, packaged_jobs


def options_of(settings: type[Any]) -> list[click.Option]:
    """Return an option per field: its name, type, default and help."""
    kinds = get_type_hints(settings)
    return [
        click.Option(
            [f"--{field.name.replace('_', '-')}"],
            type=kinds[field.name],
            default=field.default,
            show_default=field.default != "",
            help=field.metadata.get("help", ""),
        )
        for field in dataclasses.fields(settings)
    ]


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
            own = {key: value for key, value in given.items() if key in names}
            rest = {key: value for key, value in given.items() if key not in names}
            self._act(job, job.settings(**own), **rest)

        params: list[click.Parameter] = [*options_of(job.settings), *self._extra]
        return click.Command(job.name, callback=run, params=params, help=job.summary)


def as_arguments(settings: Any) -> list[str]:  # noqa: ANN401 - any settings dataclass
    """Return settings as the command line that gives them."""
    return [
        f"--{field.name.replace('_', '-')}={getattr(settings, field.name)}"
        for field in dataclasses.fields(settings)
    ]
