"""Deletions of the checkpoints of jobs, in the background, because they may take an hour."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sluicegate_operator.kube.resource import Key
from sluicegate_operator.kube.work_queue import WorkQueue
from sluicegate_operator.reconcile.actions import EmitEvent
from sluicegate_operator.reconcile.observed import Job
from sluicegate_operator.storage_tasks.queue import TaskSlots

_RETRY_S = 30.0


@dataclass
class CheckpointDeletions:
    """Runs at most one deletion for each job, as many at a time as there are slots.

    Args:
        delete: deletes the checkpoint of a job.
        deleted: notes that the checkpoint of a job is deleted, by its key and UID.
        emit_event: reports a failure, which is retried.
        queue: a job is queued when its deletion has ended or was cancelled.
        slots: of storage tasks.
    """

    delete: Callable[[Job], Awaitable[None]]
    deleted: Callable[[Key, str], None]
    emit_event: Callable[[Key, EmitEvent], Awaitable[None]]
    queue: WorkQueue[Key]
    slots: TaskSlots
    _running: dict[Key, asyncio.Task[None]] = field(default_factory=dict)

    def start(self, key: Key, job: Job) -> None:
        """Delete a job's checkpoint in the background, unless that runs already."""
        if key not in self._running:
            task = asyncio.create_task(self._delete(key, job), name=job.uid)
            running = self._running[key] = task
            running.add_done_callback(lambda ended: self._ended(key, ended))

    def cancel_of(self, key: Key) -> None:
        """Cancel the deletion for a job that no longer exists: its finalizer was removed by hand."""
        if key in self._running:
            self._running[key].cancel()

    async def end_of_another(self, key: Key, uid: str) -> None:
        """Wait for the end of a cancelled deletion for an earlier job of this name, whose path is the same."""
        running = self._running.get(key)
        if running is not None and running.get_name() != uid:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def cancel(self) -> None:
        """Cancel all deletions."""
        for running in self._running.values():
            running.cancel()

    async def close(self) -> None:
        """Cancel all deletions, and wait until their processes are dead."""
        running = [*self._running.values()]
        self.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _delete(self, key: Key, job: Job) -> None:
        try:
            async with self.slots.others.slot(key[0]):
                await self.delete(job)
            self.deleted(key, job.uid)
        except Exception as error:  # noqa: BLE001 - it is reported, and the deletion is retried
            await self.emit_event(key, EmitEvent("DeleteFailed", str(error), warning=True))
            self.queue.add_after(key, _RETRY_S)
        else:
            self.queue.add(key)

    def _ended(self, key: Key, ended: asyncio.Task[None]) -> None:
        self._running.pop(key, None)
        if ended.cancelled():
            self.queue.add(key)  # it is started again if this replica is the leader again
