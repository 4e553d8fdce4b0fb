"""A process that seals a lineage, stepped like a driver, while drivers run that do not expect it.

It seals after the newest decision, as `sluicegate savepoint take` does.
"""

from __future__ import annotations

from sluicegate.protocol import sealing
from sluicegate.protocol.effects import LatestEpoch, LogSteps
from sluicegate.protocol.record import Seal
from tests.robustness.model.protocol.drivers import Driver
from tests.robustness.model.protocol.world import World


class Sealer(Driver):
    """Seals after the newest decision, or fails."""

    seals = True

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, None)

    def _spark(self) -> LogSteps[None]:
        newest: int | None = yield LatestEpoch()
        epoch = -1 if newest is None else newest
        seal = Seal(self.name, "L", "sim", epoch + 1, "a test", 0)
        yield from sealing.seal_after(seal)


def start_sealer(world: World, name: str = "S") -> Sealer:
    """Start a sealer next to the running processes."""
    sealer = Sealer(world, name)
    world.join(sealer)
    return sealer
