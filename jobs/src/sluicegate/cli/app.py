"""The command line: run, stop, targets, generate, verify, epochs, savepoint, dead-letters, tail, ui, history.

Exit codes: 0 for success, 1 if a check found a problem, otherwise `exit_code` of the error.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import click

from sluicegate.cli.dead_letters import dead_letters
from sluicegate.cli.epochs import epochs
from sluicegate.cli.history import history
from sluicegate.cli.options import JobGroup
from sluicegate.cli.savepoints import savepoint, stop
from sluicegate.cli.supervisor import drive, supervise
from sluicegate.cli.tail import tail
from sluicegate.cli.ui import ui
from sluicegate.deployment import termination
from sluicegate.errors import SluicegateError
from sluicegate.packaged_job import PackagedJob


class _App(click.Group):
    """Prints the three parts of a SluicegateError; any other exception keeps its traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except SluicegateError as error:
            click.echo(f"{type(error).__name__}: {error}", err=True)
            if ctx.invoked_subcommand == "run":
                termination.write(error)
            sys.exit(error.exit_code)


@click.group(cls=_App, context_settings={"show_default": True, "max_content_width": 110})
@click.version_option(package_name="sluicegate")
def app() -> None:
    """Exactly-once streaming on Spark: each epoch reaches every sink, all or nothing."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )


def _run(  # the settings are of any type
    job: PackagedJob,
    settings: Any,  # noqa: ANN401
    *,
    supervised: bool,
    standby: bool,
    create_targets: bool,
) -> None:
    if standby and not supervised:
        raise click.UsageError("--standby needs a supervisor: leave out --once")
    if create_targets:
        _targets(job, settings)
    sys.exit(supervise(job, settings, standby=standby) if supervised else drive(job, settings))


def _targets(job: PackagedJob, settings: Any) -> None:  # noqa: ANN401
    created = job.create_targets(settings)
    click.echo(f"created {', '.join(created)}" if created else "all topics and tables exist")


def _verify(job: PackagedJob, settings: Any) -> None:  # noqa: ANN401
    if job.verify is None:
        raise click.UsageError(f"{job.name} has no verification")
    result = job.verify(settings)
    for label, number in result.checked.items():
        click.echo(f"  {number:>12,}  {label}")
    for finding in result.findings:
        click.echo(f"{finding.kind.upper()}: {finding.count:,}")
        for example in finding.examples:
            click.echo(f"    {example}")
    click.echo(
        "exact: nothing lost, duplicated, wrong or undecided" if result.exact else "NOT EXACT"
    )
    sys.exit(0 if result.exact else 1)


def _generate(job: PackagedJob, settings: Any, *, records: int, seed: int) -> None:  # noqa: ANN401
    if job.generate is None:
        raise click.UsageError(f"{job.name} has no input generator")
    click.echo(job.generate(settings, records, seed))


_RUN_OPTIONS = (
    click.Option(
        ["--supervised/--once"],
        default=True,
        help="Restart the driver when it fails, or run it once in this process.",
    ),
    click.Option(
        ["--standby"],
        is_flag=True,
        help="Keep a second driver ready, which takes over when the first fails. Needs its memory twice.",
    ),
    click.Option(
        ["--create-targets"], is_flag=True, help="Create missing topics and tables first."
    ),
)
_GENERATE_OPTIONS = (
    click.Option(
        ["--records"], default=1000, type=click.IntRange(min=1), help="Number of records."
    ),
    click.Option(["--seed"], default=7, help="Seed of the random generator."),
)
_RUN = "Run a job until it is stopped. Ctrl-C stops it at the end of an epoch."
_VERIFY = "Verify the sinks of a job. Recomputes its result from the source and compares the rows."
_GENERATE = "Generate example input for a job. The same seed generates the same input."

for _command in (
    JobGroup("run", _RUN, _run, _RUN_OPTIONS),
    JobGroup("targets", "Create the missing topics and tables of a job.", _targets),
    JobGroup("verify", _VERIFY, _verify),
    JobGroup("generate", _GENERATE, _generate, _GENERATE_OPTIONS),
    epochs,
    tail,
    savepoint,
    stop,
    dead_letters,
    ui,
    history,
):
    app.add_command(_command)
