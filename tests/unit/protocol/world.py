"""A simulated world: the checkpoint store, staging, sinks, and the drivers that share them.

The laws (`laws.py`) are checked after each step. Not here: the drivers (`drivers`), and what to
schedule; the searches and the directed tests choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sluicegate.protocol.coordinator import Job
from sluicegate.protocol.record import EpochRecord, SinkBinding
from sluicegate.protocol.seal import Seal

from . import laws
from .drivers import Driver
from .setting import Setting
from .sim_sinks import Late, SimSink, Surroundings, cached_decode


@dataclass
class World:
    """Everything that outlives a driver, and what the laws remember of it."""

    setting: Setting = field(default_factory=Setting)

    def __post_init__(self) -> None:
        around = Surroundings(self.setting.judge, self._staged, self.delay)
        self.sinks = {
            n: SimSink(n, kind, self.setting.parts, around) for n, kind in self.setting.sinks
        }
        bindings = {
            n: SinkBinding(k, f"{k} {n}", self.setting.parts, f"L.{n}")
            for n, k in self.setting.sinks
        }
        redoable = frozenset(n for n, kind in self.setting.sinks if kind == "locking")
        self.job = Job(
            "sim",
            "L",
            sinks=bindings,
            overlap=self.setting.overlap,
            redoable=redoable,
            decide_tries=3,
            apply_tries=3,
        )
        self.finished_epochs: set[int] = set()
        self.records: dict[int, bytes] = {}
        self.seals: dict[int, Seal] = {}
        self.staged: dict[str, bytes] = {}
        self.offsets: dict[int, int] = {}
        self.commits: set[int] = set()
        self.discards: set[tuple[int, str]] = set()
        self.late: list[Late] = []
        self.drivers: list[Driver] = []
        # what only the laws look at
        self.decided: dict[int, EpochRecord] = {}
        self.ranges: dict[str, tuple[int, int]] = {}
        self.pruned: set[int] = set()
        self.events: set[str] = set()
        self.watch = laws.Watch()

    # --- the store --------------------------------------------------------------------------

    def put(self, stored: bytes) -> bool:
        """Create a record if there is none."""
        record = cached_decode(stored)
        if record.epoch in self.records or record.epoch in self.seals:
            return False
        self.records[record.epoch] = stored
        # one that lands where the decided one was pruned is no decision
        self.decided.setdefault(record.epoch, record)
        return True

    def put_seal(self, seal: Seal) -> bool:
        """Create a seal where no record is."""
        if seal.epoch in self.records or seal.epoch in self.seals:
            return False
        self.seals[seal.epoch] = seal
        if seal.epoch not in self.pruned:  # where a decision was pruned it ends nothing
            self.events.add("sealed")
            laws.check_seal(self, seal.epoch)
        return True

    def tidy(self, record: EpochRecord) -> None:
        """Prune as the storage does (rules 2 and 8)."""
        old = [e for e in self.records if e <= record.epoch - self.setting.retention]
        for epoch in old:
            del self.records[epoch]
            self.pruned.add(epoch)
        for name in list(self.staged):
            epoch, attempt = int(name.split("/")[0]), name.split("/")[1]
            kept = self.records.get(epoch)
            pruned = epoch <= record.epoch - self.setting.retention
            if pruned or (kept is not None and cached_decode(kept).attempt != attempt):
                del self.staged[name]

    def _staged(self, name: str) -> bytes | None:
        # looked up anew each time: a checkpoint from a backup puts another staging area here
        return self.staged.get(name)

    def delay(self, late: Late) -> None:
        """Keep a request in the network."""
        self.late.append(late)

    def settle_late(self, index: int, *, land: bool) -> None:
        """Let a late request land, or get lost for good."""
        late = self.late.pop(index)
        self.events.add("late")
        (late.land if land else late.drop)()
        laws.check(self)

    # --- what else happens ------------------------------------------------------------------

    def start(self, name: str, *, last: int | None = None) -> Driver:
        """Start a driver process; it ends once it has committed epoch `last`."""
        driver = Driver(self, name, last)
        self.join(driver)
        return driver

    def join(self, driver: Driver) -> None:
        """Let a process of another kind run beside the drivers."""
        self.drivers.append(driver)
        for other in self.alive():
            if other is not driver:
                other.rivalled = driver.rivalled = True

    def alive(self) -> list[Driver]:
        """Return the drivers that still run, paused or not."""
        return [d for d in self.drivers if d.alive]

    def restore_sink(self, name: str, index: int) -> None:
        """Put a sink back from a backup."""
        self.events.add("restored")
        self.sinks[name].restore(index)
        laws.check(self)

    def discard(self, epoch: int, sink: str) -> None:
        """`sluicegate epochs discard`."""
        if self.sinks[sink].discard(self.decided[epoch]):
            self.discards.add((epoch, sink))
        laws.check(self)

    def checkpoint(self) -> Callable[[], None]:
        """Back the checkpoint up; the returned function puts it back."""
        kept = (dict(self.records), dict(self.staged), dict(self.offsets), set(self.commits))

        def put_back() -> None:
            self.events.add("checkpoint restored")
            self.records, self.staged, self.offsets, self.commits = (
                dict(kept[0]), dict(kept[1]), dict(kept[2]), set(kept[3])
            )  # fmt: skip

        return put_back

    def key(self) -> int:
        """Return a hash that tells this state from another."""
        stored = tuple(sorted((e, cached_decode(r).attempt) for e, r in self.records.items()))
        drivers = tuple((d.name, d.alive, d.history, d.next_step) for d in self.drivers)
        return hash((
            stored, tuple(sorted(self.staged)), tuple(sorted(self.offsets.items())), frozenset(self.commits),
            tuple(s.key() for s in self.sinks.values()), tuple(x.what for x in self.late), drivers,
            tuple(sorted(self.seals)), frozenset(self.finished_epochs),
        ))  # fmt: skip
