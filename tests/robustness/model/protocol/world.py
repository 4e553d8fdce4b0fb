"""A simulated world: the checkpoint store, staging, sinks, and the drivers that share them.

The invariants are checked after each step. The searches and the directed tests choose the schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sluicegate.protocol.job import Job
from sluicegate.protocol.markers import NO_MARKER
from sluicegate.protocol.record import EpochRecord, Seal, SinkBinding
from tests.robustness.model.protocol.drivers import Driver
from tests.robustness.model.protocol.simulated_sinks import (
    Environment,
    LateRequest,
    SimulatedSink,
    cached_decode,
)
from tests.robustness.model.protocol.world_config import WorldConfig
from tests.robustness.validate import invariants


@dataclass
class World:
    """Everything that outlives a driver, and what the invariants remember."""

    config: WorldConfig = field(default_factory=WorldConfig)

    def __post_init__(self) -> None:
        config = self.config
        environment = Environment(config.compare, config.seed, self._staged, self.delay)
        self.sinks = {
            n: SimulatedSink(n, kind, self.config.parts, environment)
            for n, kind in self.config.sinks
        }
        bindings = {
            n: SinkBinding(
                k,
                f"{k} {n}",
                config.parts,
                f"L.{n}",
                cluster="c" if k == "fencing" else "",
                durable_markers=k == "fencing",
            )
            for n, k in config.sinks
        }
        redoable = frozenset(n for n, kind in self.config.sinks if kind == "locking")
        self.job = Job(
            "sim",
            "L",
            sinks=bindings,
            delivery=self.config.delivery,
            overlap=self.config.overlap,
            redoable=redoable,
            decide_tries=3,
            apply_tries=3,
        )
        self.may_overlap = self.config.overlap
        self.marked_applied: set[int] = set()
        self.records: dict[int, bytes] = {}
        self.seals: dict[int, Seal] = {}
        self.staged: dict[str, bytes] = {}
        self.offsets: dict[int, int] = {}
        self.commits: set[int] = set()
        self.discards: set[tuple[int, str]] = set()
        self.late: list[LateRequest] = []
        self.drivers: list[Driver] = []
        # used only by the invariants
        self.decided: dict[int, EpochRecord] = {}
        self.ranges: dict[str, tuple[int, int]] = {}
        self.pruned: set[int] = set()
        self.events: set[str] = set()
        self.watch = invariants.Watch()

    # --- the store --------------------------------------------------------------------------

    def put(self, stored: bytes) -> bool:
        """Create a record if there is none."""
        record = cached_decode(stored)
        if record.epoch in self.records or record.epoch in self.seals:
            return False
        self.records[record.epoch] = stored
        # a request that creates the object again after the decision was pruned decides nothing
        self.decided.setdefault(record.epoch, record)
        return True

    def put_seal(self, seal: Seal) -> bool:
        """Create a seal if there is no record."""
        if seal.epoch in self.records or seal.epoch in self.seals:
            return False
        self.seals[seal.epoch] = seal
        if seal.epoch not in self.pruned:  # created after the decision was pruned, it seals nothing
            self.events.add("sealed")
            invariants.check_seal(self, seal.epoch)
        return True

    def prune_after(self, record: EpochRecord) -> None:
        """Prune like the real epoch log (rules 2 and 8)."""
        pruned_epochs = [e for e in self.records if e <= record.epoch - self.config.retention]
        for epoch in pruned_epochs:
            del self.records[epoch]
            self.pruned.add(epoch)
        for name in list(self.staged):
            epoch, attempt = int(name.split("/")[0]), name.split("/")[1]
            record_of_epoch = self.records.get(epoch)
            pruned = epoch <= record.epoch - self.config.retention
            if pruned or (
                record_of_epoch is not None and cached_decode(record_of_epoch).attempt != attempt
            ):
                del self.staged[name]

    def _staged(self, name: str) -> bytes | None:
        # looked up each time: restoring the checkpoint replaces the staging area
        return self.staged.get(name)

    def delay(self, late: LateRequest) -> None:
        """Hold a request in the network."""
        self.late.append(late)

    def end_late_request(self, index: int, *, deliver: bool) -> None:
        """Deliver or drop a late request."""
        late = self.late.pop(index)
        self.events.add("late")
        (late.deliver if deliver else late.drop)()
        invariants.check(self)

    # --- other events -----------------------------------------------------------------------

    def start(self, name: str, *, last: int | None = None, overlap: bool | None = None) -> Driver:
        """Start a driver process; it ends after it has committed epoch `last`.

        `overlap` is its own setting, None for that of the world: a user may change it between drivers.
        """
        self.may_overlap = self.may_overlap or self.config.overlap or bool(overlap)
        driver = Driver(self, name, last, overlap=overlap)
        self.join(driver)
        return driver

    def join(self, driver: Driver) -> None:
        """Add a process that runs next to the others."""
        self.drivers.append(driver)
        for other in self.alive():
            if other is not driver:
                other.rivalled = driver.rivalled = True

    def alive(self) -> list[Driver]:
        """Return the processes that are alive, paused or not."""
        return [d for d in self.drivers if d.alive]

    def restore_sink(self, name: str, index: int) -> None:
        """Restore a sink from a backup."""
        self.events.add("restored")
        self.sinks[name].restore(index)
        invariants.check(self)

    def restore_before_seeds(self, name: str) -> None:
        """Restore a sink from a backup that is older than its first epoch, which no redo can follow."""
        self.events |= {"restored", "emptied"}
        self.sinks[name].restore_before_seeds()
        invariants.check(self)

    def lose_markers(self, name: str, back: int) -> None:
        """Let each part of a sink lose the markers of its last epochs, but not their rows.

        Args:
            name: of the sink.
            back: number of epochs that lose their markers before the newest decided one. If only that
                one lost its marker, a replay would take it for unapplied and repeat its rows.
        """
        self.events.add("markers lost")
        newest, older = self.decided[max(self.decided)], {}
        for part in range(self.config.parts):
            marker = last = newest.prev_of(name, part)
            for _ in range(back):
                if marker.epoch > NO_MARKER.epoch:
                    marker = self.decided[marker.epoch].prev_of(name, part)
            if marker != last:
                older[part] = marker
        self.sinks[name].lose_markers(older)
        invariants.check(self)

    def expire_markers(self, name: str) -> None:
        """Let the markers of a sink expire: every driver was away for longer than they are kept."""
        self.events.add("expired")
        self.sinks[name].expire_markers()

    @property
    def is_sealed(self) -> bool:
        """Whether no epoch can be decided any more."""
        return "sealed" in self.events

    def may_be_sealed(self) -> bool:
        """Return whether the lineage is sealed, or a sealer or its request may still seal it."""
        requested = any(late.what.startswith("seal ") for late in self.late)
        return self.is_sealed or requested or any(driver.seals for driver in self.alive())

    def has_regressed(self) -> bool:
        """Return whether a sink lacks an epoch that was applied to it."""
        lacking = {
            epoch
            for epoch, record in self.decided.items()
            for sink in self.sinks.values()
            if not invariants.has_epoch(sink, record)
        }
        unapplied = {max(self.records)} if self.newest_may_be_unapplied() else set()
        return bool(lacking - unapplied)

    def newest_may_be_unapplied(self) -> bool:
        """Return whether the logs do not prove that every sink has the newest decided epoch."""
        if not self.records:
            return False
        newest = max(self.records)
        proven = newest in self.commits and not self.decided[newest].overlapped
        return not (proven or newest in self.marked_applied)

    def discard(self, epoch: int, sink: str) -> None:
        """Discard an epoch for a sink, as `sluicegate epochs discard` does."""
        if self.sinks[sink].discard(self.decided[epoch]):
            self.discards.add((epoch, sink))
        invariants.check(self)

    def checkpoint(self) -> Callable[[], None]:
        """Back up the checkpoint; the returned function restores it."""
        backup = (dict(self.records), dict(self.staged), dict(self.offsets), set(self.commits))

        def restore() -> None:
            self.events.add("checkpoint restored")
            self.records, self.staged, self.offsets, self.commits = (
                dict(backup[0]), dict(backup[1]), dict(backup[2]), set(backup[3])
            )  # fmt: skip

        return restore

    def key(self) -> int:
        """Return a hash that identifies this state."""
        stored = tuple(sorted((e, cached_decode(r).attempt) for e, r in self.records.items()))
        drivers = tuple((d.name, d.alive, d.history, d.next_step) for d in self.drivers)
        return hash((
            stored, tuple(sorted(self.staged)), tuple(sorted(self.offsets.items())), frozenset(self.commits),
            tuple(s.key() for s in self.sinks.values()), tuple(x.what for x in self.late), drivers,
            tuple(sorted(self.seals)), frozenset(self.marked_applied),
        ))  # fmt: skip
