"""The command line of a driver's container: which main to run, and with which arguments.

Called by `driver`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate.settings.schema import NOTHING_STARTED


@dataclass(frozen=True)
class Main:
    """A user's main.

    Args:
        module: to be run as by `python -m`; empty for a file.
        file: to be run as by `python FILE`.
        arguments: for it.
    """

    module: str
    file: str
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """How people call it."""
        return self.module or self.file


def parse(given: Sequence[str]) -> Main:
    """Return the main that a command line names.

    Args:
        given: `--module NAME` or `--file PATH`, then perhaps `--` and the main's own arguments.

    Raises:
        SettingsInvalid: it names none.
    """
    ours, theirs = _split(given)
    match ours:
        case ["--module", name] if name:
            return Main(name, "", theirs)
        case ["--file", path] if path:
            return Main("", path, theirs)
        case _:
            raise SettingsInvalid(
                f"the driver's command line names no main: {' '.join(given) or 'it is empty'}",
                data=NOTHING_STARTED,
                do="give --module NAME or --file PATH, then -- and the main's own arguments",
            )


def _split(given: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    if "--" not in given:
        return list(given), ()
    at = list(given).index("--")
    return list(given[:at]), tuple(given[at + 1 :])
