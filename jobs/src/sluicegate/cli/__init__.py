"""The `sluicegate` command; `main` is the console script."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from sluicegate.cli.app import app  # noqa: PLC0415 - `app` imports the modules of this package

    app()
