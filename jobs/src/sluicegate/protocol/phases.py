"""The phases of an epoch, and the one table of its transitions."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from sluicegate.protocol.record import EpochRecord


class Phase(enum.Enum):
    """The phase of an epoch in this process."""

    LOOKING = "looking"
    """Reads the log: the epoch may be decided already."""
    STAGING = "staging"
    """The plan runs and its output becomes durable; nothing is visible."""
    DECIDING = "deciding"
    """The record is being created: this phase contains the commit point."""
    DECIDED = "decided"
    """The record exists. The epoch will be applied, by this driver or a later one."""
    APPLYING = "applying"
    """Each sink in turn writes the epoch in its own transaction."""
    DONE = "done"
    """Every sink has the epoch."""


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.LOOKING: frozenset({Phase.STAGING, Phase.DECIDED}),
    Phase.STAGING: frozenset({Phase.DECIDING}),
    Phase.DECIDING: frozenset({Phase.DECIDED}),
    Phase.DECIDED: frozenset({Phase.APPLYING}),
    Phase.APPLYING: frozenset({Phase.DONE}),
    Phase.DONE: frozenset(),
}
"""Within one process no phase is repeated. Any phase may also end with an exception."""


class IllegalTransition(AssertionError):
    """The coordinator tried a transition that is not in the table."""


class EpochPhase:
    """The current phase of one epoch; it moves only along `TRANSITIONS`."""

    def __init__(self) -> None:
        self.phase = Phase.LOOKING

    def advance(self, phase: Phase) -> None:
        """Move to `phase`; raises IllegalTransition if the table does not allow it."""
        if phase not in TRANSITIONS[self.phase]:
            raise IllegalTransition(f"{self.phase.value} -> {phase.value}")
        self.phase = phase


@dataclass(frozen=True)
class DecidedEpoch:
    """A decided epoch that this process applies."""

    record: EpochRecord
    replayed: bool
    """Whether an earlier attempt or another driver decided it."""
    phase: EpochPhase

    @classmethod
    def replay(cls, record: EpochRecord) -> DecidedEpoch:
        """Return an epoch whose decision was found in the log."""
        phase = EpochPhase()
        phase.advance(Phase.DECIDED)
        return cls(record, replayed=True, phase=phase)
