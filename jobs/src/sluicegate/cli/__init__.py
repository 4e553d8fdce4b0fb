"""The `sluicegate` command; `main` is the console script."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"] and "--once" in arguments[2:] and "--help" not in arguments:
        from sluicegate.spark.session import begin_session  # noqa: PLC0415 - only a driver needs it

        begin_session(arguments[1])  # the JVM starts while the modules of the job are imported
    from sluicegate.cli.app import app  # noqa: PLC0415 - `app` imports the modules of this package

    app()
