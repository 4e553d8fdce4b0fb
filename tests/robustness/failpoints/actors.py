"""What fails in a long run, and how; and which of it belongs to which matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Actor(StrEnum):
    """What fails, and how."""

    DRIVER = "driver killed"
    PYTHON = "Python killed"
    JVM = "JVM killed"
    WORKERS = "Python workers killed"
    ZOMBIE = "driver resumed after its successor took over"
    KAFKA_KILLED = "Kafka killed"
    KAFKA_PAUSED = "Kafka paused"
    MYSQL_KILLED = "MySQL killed"
    MYSQL_PAUSED = "MySQL paused"
    MYSQL_CUT = "MySQL connections cut"
    EXECUTOR = "executor killed"
    EXECUTOR_STOPPED = "executor stopped in order"
    KAFKA_UNREACHABLE = "network to Kafka cut"
    MYSQL_UNREACHABLE = "network to MySQL cut"
    KAFKA_SLOW = "network to Kafka slow"
    MYSQL_SLOW = "network to MySQL slow"
    KAFKA_REPLIES_LOST = "Kafka's replies lost"
    MYSQL_REPLIES_LOST = "MySQL's replies lost"
    ISOLATED = "driver cut off until its successor took over"
    LEADER_KILLED = "leader of a sink's topic killed"
    LEADER_PAUSED = "leader of a sink's topic paused"
    LEADER_RESTARTED = "leader of a sink's topic restarted in order"
    COORDINATOR_KILLED = "transaction coordinator killed"
    CONTROLLER_KILLED = "active controller killed"
    SUPERVISOR_KILLED = "supervisor killed"
    SUPERVISOR_PAUSED = "supervisor paused"
    SUPERVISED = "driver of a supervisor killed"
    CLOCK_AHEAD = "clock set ahead"
    CLOCK_BACK = "clock set back"
    DISK_FULL = "disk full"
    NO_MEMORY = "no memory left"
    POWER_CUT = "power cut"
    MOVED = "driver killed, and its job moved"
    MOVED_ZOMBIE = "driver resumed after its job had moved"
    FAILED_OVER = "MySQL failed over to a replica without the last epochs"
    STORE_REFUSES = "store refuses (403)"
    STORE_UNAVAILABLE = "store unavailable (503)"
    STORE_FAILS = "store fails (500)"
    STORE_SAYS_EXISTS = "store says that it exists (412)"
    STORE_SLOW = "store slow"
    STORE_LOSES_REPLY = "store loses its reply"
    STORE_KILLED = "store killed"
    STORE_PAUSED = "store paused"
    STORE_DISK_FULL = "store's disk full"
    STORE_POWER_CUT = "power cut of the store"


STORE_EFFECTS = {
    Actor.STORE_REFUSES: "refuse",
    Actor.STORE_UNAVAILABLE: "unavailable",
    Actor.STORE_FAILS: "fail",
    Actor.STORE_SAYS_EXISTS: "say-exists",
    Actor.STORE_SLOW: "slow",
    Actor.STORE_LOSES_REPLY: "lose-reply",
}
"""Actors that fail at one request, with the effect of the proxy (`s3_proxy.Fault`)."""


@dataclass(frozen=True)
class StoreRequests:
    """Requests of a driver to its object store.

    Args:
        kind: as in `s3_proxy.Request`.
        name: a regular expression for the name of the object or listing.
        prunes: whether they delete what is pruned, of which a run has nothing before its 100th epoch.
        idle: whether a driver sends them only while it finds no input, so that the run must send none.
    """

    kind: str
    name: str
    prunes: bool = False
    idle: bool = False


STORE_REQUESTS = {
    "offset log": StoreRequests("PUT", r"/offsets/\d+$"),
    "upload of a part": StoreRequests("PUT", r"/staging/"),
    "decide": StoreRequests("PUT", r"/epochs/\d+$"),
    "epoch report": StoreRequests("PUT", r"/epochs/\d+\.report$"),
    "applied marker": StoreRequests("PUT", r"/epochs/\d+\.applied$", idle=True),
    "commit log": StoreRequests("PUT", r"/commits/\d+$"),
    "list of the epoch log": StoreRequests("LIST", r"/epochs/\?$"),
    "list of staged parts": StoreRequests("LIST", r"/staging/\?$"),
    "deletion from the epoch log": StoreRequests("DELETE", r"/epochs/", prunes=True),
    "deletion of a staged part": StoreRequests("DELETE", r"/staging/", prunes=True),
}
"""The failpoints of these actors."""

KAFKA_NETWORK_ACTORS = (Actor.KAFKA_UNREACHABLE, Actor.KAFKA_SLOW, Actor.KAFKA_REPLIES_LOST)
"""Actors of the network that are between a driver and Kafka."""


class Matrix(StrEnum):
    """What the first fault of each pair is drawn from."""

    ANY_RUN = "any run"
    STORE = "the object store"
    EXECUTORS = "the executors"
    NETWORK = "the network"
    BROKERS = "one of three brokers"
    SUPERVISOR = "the supervisor"
    MACHINE = "the machine"
    STORE_MACHINE = "the machine of the object store"
    REPLICA = "a replica of MySQL"
    MOVE = "a move to a new checkpoint"


ACTORS_OF: Mapping[Matrix, Sequence[Actor]] = {
    Matrix.STORE: tuple(STORE_EFFECTS),
    Matrix.EXECUTORS: (Actor.EXECUTOR, Actor.EXECUTOR_STOPPED),
    Matrix.NETWORK: (
        *KAFKA_NETWORK_ACTORS,
        Actor.MYSQL_UNREACHABLE,
        Actor.MYSQL_SLOW,
        Actor.MYSQL_REPLIES_LOST,
        Actor.ISOLATED,
    ),
    Matrix.BROKERS: (
        Actor.LEADER_KILLED,
        Actor.LEADER_PAUSED,
        Actor.LEADER_RESTARTED,
        Actor.COORDINATOR_KILLED,
        Actor.CONTROLLER_KILLED,
    ),
    Matrix.SUPERVISOR: (Actor.SUPERVISOR_KILLED, Actor.SUPERVISOR_PAUSED, Actor.SUPERVISED),
    Matrix.MACHINE: (
        Actor.CLOCK_AHEAD,
        Actor.CLOCK_BACK,
        Actor.DISK_FULL,
        Actor.NO_MEMORY,
        Actor.POWER_CUT,
    ),
    Matrix.STORE_MACHINE: (
        Actor.STORE_KILLED,
        Actor.STORE_PAUSED,
        Actor.STORE_DISK_FULL,
        Actor.STORE_POWER_CUT,
    ),
    Matrix.REPLICA: (Actor.FAILED_OVER,),
    Matrix.MOVE: (Actor.MOVED, Actor.MOVED_ZOMBIE),
}
"""Actors that need a run of their kind; see `RunOptions`."""

_OTHERS = {actor for actors in ACTORS_OF.values() for actor in actors}

ACTORS = tuple(actor for actor in Actor if actor not in _OTHERS)
"""Actors that fail at a failpoint or at any moment of any run."""

OUTLIVED_ACTORS = frozenset(
    {Actor.ZOMBIE, Actor.ISOLATED, Actor.SUPERVISOR_KILLED, Actor.MOVED_ZOMBIE}
)
"""Actors whose driver may still run when its successor does."""

DRIVER_ACTORS = OUTLIVED_ACTORS | {
    Actor.DRIVER,
    Actor.PYTHON,
    Actor.JVM,
    Actor.WORKERS,
    Actor.SUPERVISED,
    Actor.POWER_CUT,
    Actor.MOVED,
}
"""Actors after which another driver starts."""

REPLACED_BY_RUN = DRIVER_ACTORS - {Actor.SUPERVISED}
"""Actors after which the run starts the next driver, and may change its settings."""

ENDING_ACTORS = frozenset(
    {Actor.DRIVER, Actor.PYTHON, Actor.JVM, Actor.SUPERVISED, Actor.POWER_CUT, Actor.MOVED}
)
"""Actors of which no process of the driver is left."""

SECOND_ACTORS = tuple(actor for actor in ACTORS if actor is not Actor.ZOMBIE)

SUPERVISED_SECOND_ACTORS = (
    *(actor for actor in ACTORS if actor not in DRIVER_ACTORS),
    Actor.SUPERVISOR_PAUSED,
    Actor.SUPERVISED,
)
