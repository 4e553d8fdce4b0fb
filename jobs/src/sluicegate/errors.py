"""Every error that Sluicegate raises, with its meaning for the data and its remedy.

An error has three parts, always in this order: what happened, what it means for the data, and what
to do. `retryable` says whether the same driver may try the epoch again (`tolerated-failures`). A
driver ends with the `exit_code` of its error, and its supervisor (`sluicegate run`, the operator)
acts on that.
The order is that of a job: before its start, decisions, savepoints, staging, applying.
"""

from __future__ import annotations

import enum
from functools import partial
from typing import ClassVar


class ExitCode(enum.IntEnum):
    """Exit codes of a driver besides 0, as an interface: a supervisor acts on them."""

    FAILED = 1
    """Any other failure. A restart may help."""
    CANNOT_START = 64
    """The job cannot start with these settings, sinks or this checkpoint. A restart cannot help."""
    SUPERSEDED = 65
    """Another driver owns the checkpoint, or the job has moved. A restart cannot help."""
    HISTORY_BROKEN = 66
    """Checkpoint, epoch log and sinks contradict each other. A restart cannot help."""
    LATE = 75
    """An epoch is late or cannot be applied, or the clock was set back. A restart is the remedy."""


FINAL_EXIT_CODES = frozenset({ExitCode.CANNOT_START, ExitCode.SUPERSEDED, ExitCode.HISTORY_BROKEN})
"""Exit codes after which a restart cannot help."""


class SluicegateError(Exception):
    """The base class of all errors of this library.

    A subclass states its outcome: `class Fenced(SluicegateError, exit_code=ExitCode.SUPERSEDED)`.

    Args:
        what: what happened, in one sentence that names the thing.
        data: what it means for the data: whether anything is lost, repeated or at risk.
        do: what the reader should do now.
    """

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = ExitCode.FAILED

    def __init_subclass__(
        cls, *, retryable: bool | None = None, exit_code: ExitCode | None = None
    ) -> None:
        """Set the outcome; a part that is not given is inherited."""
        super().__init_subclass__()
        if retryable is not None:
            cls.retryable = retryable
        if exit_code is not None:
            cls.exit_code = exit_code

    def __init__(self, what: str, *, data: str = "", do: str = "") -> None:
        self.what, self.data, self.do = what, data, do
        labelled = (("data", data), ("do", do))
        super().__init__(what + "".join(f"\n  {label}: {t}" for label, t in labelled if t))

    def __reduce__(self) -> tuple[object, ...]:
        """Keep all three parts when the error travels from an executor to the driver."""
        return partial(type(self), self.what, data=self.data, do=self.do), ()


class PreflightFailed(SluicegateError, exit_code=ExitCode.CANNOT_START):
    """Raised before a job starts, when its settings, sinks and checkpoint do not fit together."""


class SettingsInvalid(PreflightFailed):
    """Raised when a setting, an argument or an environment variable has an invalid value."""


class QueryRefused(PreflightFailed):
    """Raised when Spark cannot run a query as it is written, for example in its output mode."""


class TargetMissing(PreflightFailed):
    """Raised when a topic, table or bucket that the job needs does not exist."""


class SchemaMismatch(PreflightFailed):
    """Raised when the job's rows do not match the columns of their target."""


class AccessDenied(PreflightFailed):
    """Raised when a server rejects the user, the password or an operation without its privilege."""


class StoreUnsafe(PreflightFailed):
    """Raised when the checkpoint's store breaks a guarantee that exactly-once depends on."""


class TransactionTimeoutInvalid(PreflightFailed):
    """Raised when the broker does not allow the transaction timeout that the job needs."""


class CheckpointOfAnotherJob(PreflightFailed):
    """Raised when a checkpoint belongs to another job or to a query that Sluicegate never ran."""


class OwnedByAnother(PreflightFailed):
    """Raised when a folder on the store belongs to another resource of Kubernetes."""


class InputChanged(PreflightFailed):
    """Raised when the input of a batch is not the input that its checkpoint was created for."""


class Fenced(SluicegateError, exit_code=ExitCode.SUPERSEDED):
    """Raised when another driver has taken over the checkpoint; this one writes nothing more."""


class Sealed(SluicegateError, exit_code=ExitCode.SUPERSEDED):
    """Raised when the lineage was sealed for a savepoint that moves the job elsewhere."""


class OffsetLogDiverged(SluicegateError, exit_code=ExitCode.HISTORY_BROKEN):
    """Raised when Spark's offset log differs from what an epoch was decided with (rule 3)."""


class RecordOfAnotherJob(SluicegateError, exit_code=ExitCode.HISTORY_BROKEN):
    """Raised when a decided epoch names sinks that this job does not have (rule 4)."""


class EpochLogBroken(SluicegateError, exit_code=ExitCode.HISTORY_BROKEN):
    """Raised when a record of the epoch log is missing, unreadable or of a newer format."""


class DecisionUnknown(SluicegateError, retryable=True):
    """Raised when the store does not confirm whether a record was created (rule 1).

    Nothing of the epoch was applied.
    """


class StoreUnavailable(SluicegateError, retryable=True):
    """Raised when the checkpoint store gives no clear answer; a write may have succeeded."""


class EpochUnfinished(SluicegateError, retryable=True):
    """Raised when a decided epoch may not be in every sink yet, but should be.

    A lineage cannot be sealed in that state, and a driver cannot end with exit code 0.
    """


class SavepointInvalid(SluicegateError, exit_code=ExitCode.CANNOT_START):
    """Raised when a savepoint does not exist, is incomplete or has changed since it was taken."""


class SavepointRefused(PreflightFailed):
    """Raised when a savepoint cannot be taken, restored or deleted as requested."""


class SavepointFailed(SluicegateError, retryable=True):
    """Raised when a driver could not take the savepoint requested of it; its job can go on."""


class SinksStillOwned(PreflightFailed):
    """Raised when a branch would write to the sinks of the job that it was branched from."""


class StageFailed(SluicegateError, retryable=True):
    """Raised when staging fails; the epoch is undecided and nothing of it is visible."""


class ExecutorStopping(StageFailed):
    """Raised when Spark sends tasks to an executor that is stopping; the same driver tries again."""


class LookupUnanswered(SluicegateError, retryable=True):
    """Raised when the store of a lookup does not answer after all retries; the epoch is undecided."""


class StateIncomplete(SluicegateError):
    """Raised when the plan left state partitions without their next version (rule 9)."""


class RowRefused(SluicegateError):
    """Raised when a row does not fit its sink and there is no dead-letter sink (rule 10)."""


class PartTooLarge(SluicegateError, exit_code=ExitCode.CANNOT_START):
    """Raised when an epoch has more data for a part of a sink than one transaction may write (rule 10).

    The epoch is undecided. It has the same size after a restart, because its offsets are fixed.
    """


class ClockSetBack(SluicegateError, exit_code=ExitCode.LATE):
    """Raised when the clock of a running driver is set back: Spark would wait until it has caught up."""


class EpochTimeout(SluicegateError, exit_code=ExitCode.LATE):
    """Raised when an epoch exceeds its timeout, or Spark begins none for progress-timeout-s.

    The process ends and is restarted (rule 18).
    """


class OutOfMemory(SluicegateError, exit_code=ExitCode.LATE):
    """Raised when a thread failed as it began, for lack of memory; the process ends and is restarted."""


class SinkUnavailable(SluicegateError, retryable=True):
    """Raised when a sink gives no clear answer; the apply is retried from the marker."""


class RowsLost(SluicegateError, retryable=True):
    """Raised at at-most-once when an apply failed or is in doubt; it is not retried."""


class SinkRejected(SluicegateError):
    """Raised when a sink rejects decided rows permanently; only a change of the sink can help."""


class SinkRegressed(SluicegateError, exit_code=ExitCode.HISTORY_BROKEN):
    """Raised when a marker is older than the one before this epoch: the sink was reset (rule 11)."""


class MarkerMismatch(SluicegateError, exit_code=ExitCode.HISTORY_BROKEN):
    """Raised when a marker is absent, or of an attempt that this lineage never decided (rule 11)."""


class Stuck(SluicegateError, retryable=True, exit_code=ExitCode.LATE):
    """Raised when a decided epoch cannot be applied.

    It stays decided and is never skipped automatically (rule 14).
    """
