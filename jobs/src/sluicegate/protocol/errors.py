"""Every error that Sluicegate raises, with what it means for the data and what to do.

Not here: how an error is raised by a library (the sinks and the storage translate those).
Callers: everything. An error says three things, always in this order: what happened, what it
means for the data, what to do. `restartable` says whether starting the same driver again, with
nothing changed, can help; a supervisor (the CLI, the operator) decides on it and on nothing else.
"""

from __future__ import annotations

from typing import ClassVar


class SluicegateError(Exception):
    """The root of all errors of this library.

    Args:
        what: what happened, one sentence that names the thing.
        data: what it means for the data: is anything lost, repeated or at risk.
        do: what the reader should do now.
    """

    restartable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, data: str = "", do: str = "") -> None:
        self.what, self.data, self.do = what, data, do
        tail = "".join(
            f"\n  {label}: {text}" for label, text in (("data", data), ("do", do)) if text
        )
        super().__init__(f"{what}{tail}")

    def __reduce__(self) -> tuple[object, ...]:
        """Keep all three sentences when the error travels from an executor to the driver."""
        return _rebuild, (type(self), self.what, self.data, self.do)


def _rebuild(kind: type[SluicegateError], what: str, data: str, do: str) -> SluicegateError:
    return kind(what, data=data, do=do)


# --- before anything runs -------------------------------------------------------------------


class PreflightFailed(SluicegateError):
    """The job cannot start: its settings, a sink or the checkpoint do not fit together."""

    exit_code = 64


class SettingsInvalid(PreflightFailed):
    """A setting has a value that cannot work."""


class TargetMissing(PreflightFailed):
    """A topic or a table that the job writes to or reads from does not exist."""


class SchemaMismatch(PreflightFailed):
    """The rows of the job do not fit the columns of the target."""


class AccessDenied(PreflightFailed):
    """The server was reached and refused the user, the password or a privilege."""


class StoreUnfit(PreflightFailed):
    """The checkpoint's store does not keep a promise on which exactly-once rests."""


class TransactionTimeoutInvalid(PreflightFailed):
    """The broker does not allow a transaction as long as the job asks for."""


class CheckpointOfAnotherJob(PreflightFailed):
    """The checkpoint belongs to a job of another name, or to a query that Sluicegate never ran."""


class InputChanged(PreflightFailed):
    """A batch's checkpoint is of other input than there is now."""


# --- the decision ---------------------------------------------------------------------------


class Fenced(SluicegateError):
    """Another driver lives on this checkpoint; this one must stop and has written nothing more."""

    exit_code = 65


class Sealed(SluicegateError):
    """The lineage was ended on purpose, for a savepoint that moved the job elsewhere."""

    exit_code = 65


class OffsetLogDiverged(SluicegateError):
    """Spark's offset log does not say what it said when the epoch was decided (rule 3)."""

    exit_code = 66


class DecidedForAnotherJob(SluicegateError):
    """A decided epoch names sinks that this job does not have (rule 4)."""

    exit_code = 66


class EpochLogBroken(SluicegateError):
    """A record of the epoch log is missing, unreadable or of a newer format."""

    exit_code = 66


class DecisionUnknown(SluicegateError):
    """The store did not say whether the record was written; nothing was applied (rule 1)."""

    restartable = True


class StoreUnavailable(SluicegateError):
    """The checkpoint store did not answer, or answered in doubt; whether a write is in is unknown."""

    restartable = True


class EpochUnfinished(SluicegateError):
    """The newest decision is not known to be in every sink, so the lineage cannot be sealed yet."""

    restartable = True


# --- savepoints -----------------------------------------------------------------------------


class NoSavepoint(SluicegateError):
    """What was given as a savepoint is none, is incomplete, or was changed since it was taken."""

    exit_code = 64


class SavepointRefused(PreflightFailed):
    """A savepoint cannot be taken, restored or removed so; nothing was changed."""


class SavepointFailed(SluicegateError):
    """A driver that was asked for a savepoint could not take it; its job can go on without."""

    restartable = True


class SinksOfParent(PreflightFailed):
    """A branch would write to the sinks of the job that it was branched from."""


# --- staging --------------------------------------------------------------------------------


class StageFailed(SluicegateError):
    """Staging failed; the epoch is undecided and nothing of it is visible."""

    restartable = True


class LookupUnanswered(SluicegateError):
    """The store of a lookup did not answer, however often it was asked; the epoch is undecided."""

    restartable = True


class StateIncomplete(SluicegateError):
    """The plan left state partitions without their next version (rule 9)."""


class RowRefused(SluicegateError):
    """A row does not fit what a sink declared, and there is no dead-letter sink (rule 10)."""


class EpochTimeout(SluicegateError):
    """An epoch took longer than its timeout; the process ends and is started again (rule 18)."""

    restartable = True
    exit_code = 75


# --- applying -------------------------------------------------------------------------------


class SinkUnavailable(SluicegateError):
    """A sink did not answer, or answered in doubt; the apply starts again from the marker."""

    restartable = True


class RowsLost(SluicegateError):
    """At-most-once: an apply failed or was in doubt, and is not repeated."""

    restartable = True


class SinkRejected(SluicegateError):
    """A sink refused decided rows for good; only a change of the sink can help."""


class SinkWentBack(SluicegateError):
    """A marker is older than the one before this epoch: the sink has gone back in time (rule 11)."""

    exit_code = 66


class MarkerMismatch(SluicegateError):
    """A marker is absent, or of no attempt that this lineage decided (rule 11)."""

    exit_code = 66


class Stuck(SluicegateError):
    """A decided epoch cannot be applied; it stays decided and is never skipped by itself (rule 14)."""

    restartable = True
    exit_code = 75
