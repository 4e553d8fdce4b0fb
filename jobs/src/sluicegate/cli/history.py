"""`sluicegate history`: Spark's history server on the event logs of jobs."""

from __future__ import annotations

import os

import click


@click.command()
@click.argument("folder")
@click.option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on. Anyone who reaches it can read the logs: there is no login.",
)
@click.option("--port", default=18_080, type=click.IntRange(1, 65_535), help="Port to listen on.")
def history(folder: str, host: str, port: int) -> None:
    """Serve Spark's history server on a folder of event logs, or s3://BUCKET/PREFIX, until Ctrl-C.

    A driver writes its event log if its Spark settings have spark.eventLog.enabled. On S3 the
    access is that of checkpoints, by the AWS_* variables.
    """
    from sluicegate.spark.event_log import (  # noqa: PLC0415 - needs Spark
        history_server,
        require_logs,
    )

    require_logs(folder)
    command, environment = history_server(folder, host, port)
    click.echo(f"http://{host}:{port}/ shows the event logs in {folder}", err=True)
    os.execvpe(command[0], command, environment)  # noqa: S606 - a program of pyspark
