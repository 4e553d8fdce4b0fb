"""The phases of an epoch and the one table of what may follow what."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    """Where an epoch stands in this process."""

    LOOKING = "looking"
    """Reading whether the epoch is decided already."""
    STAGING = "staging"
    """The plan runs; its output becomes durable; nothing is visible."""
    DECIDING = "deciding"
    """The record is being created: the commit point lies inside."""
    DECIDED = "decided"
    """The record is ours or was found; it will be applied, however late."""
    APPLYING = "applying"
    """Sink after sink writes the record in its own transaction."""
    DONE = "done"
    """Every sink holds the epoch."""


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.LOOKING: frozenset({Phase.STAGING, Phase.DECIDED}),
    Phase.STAGING: frozenset({Phase.DECIDING}),
    Phase.DECIDING: frozenset({Phase.DECIDED}),
    Phase.DECIDED: frozenset({Phase.APPLYING}),
    Phase.APPLYING: frozenset({Phase.DONE}),
    Phase.DONE: frozenset(),
}
"""Any phase may also end in an exception; nothing goes backwards within one process."""


class IllegalTransition(AssertionError):
    """The coordinator tried to pass phases in an order that the table does not know."""


class Course:
    """The phase of one epoch, moved only along `TRANSITIONS`."""

    def __init__(self) -> None:
        self.phase = Phase.LOOKING

    def enter(self, phase: Phase) -> None:
        """Move on to `phase`.

        Raises:
            IllegalTransition: the table does not allow it.
        """
        if phase not in TRANSITIONS[self.phase]:
            raise IllegalTransition(f"{self.phase.value} -> {phase.value}")
        self.phase = phase
