"""The commands: run, stop, targets, generate, verify, epochs, savepoint, dead-letters, tail.

Each prints for people and exits for machines.

Exit codes: 0 done, 1 a check found something, otherwise `exit_code` of the error.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import click

from sluicegate.cli.dead_letters import dead_letters
from sluicegate.cli.epochs import epochs
from sluicegate.cli.job import PackagedJob
from sluicegate.cli.options import JobGroup
from sluicegate.cli.savepoints import savepoint, stop
from sluicegate.cli.supervisor import drive, supervise
from sluicegate.cli.tail import tail
from sluicegate.protocol.errors import SluicegateError
from sluicegate.tracing import outcome


class _App(click.Group):
    """Prints our own errors as what, data and do; anything else keeps its traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except SluicegateError as error:
            click.echo(f"{type(error).__name__}: {error}", err=True)
            if ctx.invoked_subcommand == "run":
                outcome.write(error)
            sys.exit(error.exit_code)


@click.group(cls=_App, context_settings={"show_default": True, "max_content_width": 110})
@click.version_option(package_name="sluicegate")
def app() -> None:
    """Exactly-once streaming on Spark: one epoch reaches every sink, all or nothing."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )


def _run(job: PackagedJob, settings: Any, *, supervised: bool, create_targets: bool) -> None:  # noqa: ANN401
    if create_targets:
        _targets(job, settings)
    sys.exit(supervise(job, settings) if supervised else drive(job, settings))


def _targets(job: PackagedJob, settings: Any) -> None:  # noqa: ANN401
    made = job.create_targets(settings)
    click.echo(f"created {', '.join(made)}" if made else "every topic and table is there")


def _verify(job: PackagedJob, settings: Any) -> None:  # noqa: ANN401
    if job.verify is None:
        raise click.UsageError(f"{job.name} has no independent check")
    found = job.verify(settings)
    for label, number in found.checked.items():
        click.echo(f"  {number:>12,}  {label}")
    for finding in found.findings:
        click.echo(f"{finding.kind.upper()}: {finding.count:,}")
        for example in finding.examples:
            click.echo(f"    {example}")
    click.echo(
        "exact: nothing lost, duplicated, wrong or undecided" if found.exact else "NOT EXACT"
    )
    sys.exit(0 if found.exact else 1)


def _generate(job: PackagedJob, settings: Any, *, records: int, seed: int) -> None:  # noqa: ANN401
    if job.generate is None:
        raise click.UsageError(f"{job.name} has no input to generate")
    click.echo(job.generate(settings, records, seed))


_SUPERVISED = click.Option(
    ["--supervised/--once"],
    default=True,
    help="start the driver again when it fails, or run it once in this process",
)
_CREATE = click.Option(
    ["--create-targets"], is_flag=True, help="create missing topics and tables first"
)

app.add_command(
    JobGroup(
        "run",
        "Run a job until it is stopped (Ctrl-C ends it at an epoch's end).",
        _run,
        (_SUPERVISED, _CREATE),
    )
)
app.add_command(
    JobGroup("targets", "Create the topics and tables of a job that are missing.", _targets)
)
app.add_command(
    JobGroup("verify", "Recompute a job's answer from its source and compare the sinks.", _verify)
)
app.add_command(
    JobGroup(
        "generate",
        "Make input to try a job with; the same for the same seed.",
        _generate,
        (
            click.Option(["--records"], default=1000, type=click.IntRange(min=1), help="how many"),
            click.Option(["--seed"], default=7, help="of the randomness"),
        ),
    )
)
app.add_command(epochs)
app.add_command(tail)
app.add_command(savepoint)
app.add_command(stop)
app.add_command(dead_letters)
