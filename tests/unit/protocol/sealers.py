"""A process that seals a lineage, stepped like a driver, beside drivers that know nothing of it.

It takes the newest decision for the epoch to seal after, as `sluicegate savepoint take` does. Not
here: what may happen meanwhile (`test_sealing`).
"""

from __future__ import annotations

from sluicegate.protocol import sealing
from sluicegate.protocol.effects import NewestEpoch, Steps
from sluicegate.protocol.seal import Seal

from .drivers import Driver
from .world import World


class Sealer(Driver):
    """Seals after the newest decision, or gives up."""

    seals = True

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, None)

    def _spark(self) -> Steps[None]:
        newest: int | None = yield NewestEpoch()
        epoch = -1 if newest is None else newest
        seal = Seal(self.name, "L", "sim", epoch + 1, "a test", 0)
        yield from sealing.seal_after(seal)


def start_sealer(world: World, name: str = "S") -> Sealer:
    """Let a sealer run beside whatever is alive."""
    sealer = Sealer(world, name)
    world.join(sealer)
    return sealer
