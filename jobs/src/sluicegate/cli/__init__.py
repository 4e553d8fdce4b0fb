"""The `sluicegate` command. `main` is the console script; `job` is what packaged jobs declare."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from sluicegate.cli.commands import app  # noqa: PLC0415 - `cli.job` is imported by executors

    app()
