"""What runs: the interface of every job, and that of a service which runs as long as a query does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from sluicegate.errors import SluicegateError
from sluicegate.storage.object_store import ObjectStore


class Run(ABC):
    """What every running job has, a stream (`EpochsQuery`) as well as a batch (`BatchRun`)."""

    @property
    @abstractmethod
    def lineage(self) -> str:
        """The id of the checkpoint's history."""

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """Whether it is running."""

    @property
    @abstractmethod
    def has_settled(self) -> bool:
        """Whether it has completed an epoch since its start, or found no input."""

    @abstractmethod
    def await_end(self, timeout_s: float | None = None) -> bool:
        """Wait until it ends, by default without limit; return whether it has.

        Raises:
            SluicegateError: it failed.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop at the end of the running epoch and wait for it."""

    @abstractmethod
    def cancel(self) -> None:
        """Stop, then delete the checkpoint if `on_cancel` is 'delete'."""


class BackgroundService(Protocol):
    """Something that runs in the driver as long as a query does, such as a receiver of lines.

    The query starts it before its first epoch, stops it before its last one, and ends when it fails.
    """

    def start(self, checkpoint: ObjectStore) -> None:
        """Start its threads; the checkpoint is already claimed by this job."""

    def failure(self) -> SluicegateError | None:
        """Return the error that ended it, None while it runs."""

    def stop(self) -> None:
        """Stop it and wait; may be called before `start`, and twice."""
