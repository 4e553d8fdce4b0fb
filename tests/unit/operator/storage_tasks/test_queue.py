"""The task queue: which tasks run, how they end, and when they have to wait. No worker process is started."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import pytest

from sluicegate.errors import SettingsInvalid
from sluicegate_operator.reconcile.storage_tasks import (
    CheckVolume,
    Done,
    FailedTask,
    Measure,
    Running,
    TakeSavepoint,
    Task,
    VolumeChecked,
    parse_result,
    parse_task,
    task_name,
)
from sluicegate_operator.storage_tasks.queue import FairSlots, TaskQueue, TaskSlots
from sluicegate_operator.storage_tasks.runner import TaskFailed

NOW = 1_800_000_000.0
TASK = CheckVolume("s3://b/p", make_bucket=False, region="r", access="a")
RESULT = VolumeChecked(bucket_created=False)


class FakeWorkers:
    """Replaces worker processes: each task waits until the test provides its answer."""

    def __init__(self) -> None:
        self.started: list[tuple[Task, Mapping[str, str]]] = []
        self.answers: asyncio.Queue[object] = asyncio.Queue()
        self.ended: list[str] = []
        self.cancelled = 0

    async def run(self, task: Task, environment: Mapping[str, str], _timeout_s: float) -> object:
        self.started.append((task, environment))
        try:
            answer = await self.answers.get()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def queue(self, max_concurrent: int = 4) -> TaskQueue:
        # the tests' resources are of one namespace, which does not get the last slot
        slots = TaskSlots(FairSlots(max_concurrent + 1), FairSlots(max_concurrent + 1))
        return TaskQueue(self.ended.append, slots=slots, clock=lambda: NOW, runner=self.run)


async def environment() -> Mapping[str, str]:
    return {"AWS_REGION": "r"}


async def unreadable_secret() -> Mapping[str, str]:
    raise SettingsInvalid("there is no Secret keys", data="nothing", do="create it")


async def run_until(condition: Callable[[], bool]) -> None:
    """Run the event loop until a condition holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - it waits for the event loop itself
            await asyncio.sleep(0)


def run_scene(scene: Callable[[FakeWorkers], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        await scene(FakeWorkers())

    asyncio.run(play())


def start(
    queue: TaskQueue,
    uid: str,
    task: Task = TASK,
    environment_of: Callable[[], Awaitable[Any]] = environment,
) -> None:
    queue.start(uid, task, environment_of, 60.0)


def test_task_is_started_once_and_its_end_is_reported() -> None:
    async def scene(workers: FakeWorkers) -> None:
        queue = workers.queue()
        start(queue, "u")
        start(queue, "u")
        assert queue.states("u") == {TASK: Running(NOW)}
        workers.answers.put_nowait(RESULT)
        await run_until(lambda: bool(workers.ended))
        start(queue, "u")
        assert queue.states("u") == {TASK: Done(NOW, RESULT)}
        assert workers.started == [(TASK, {"AWS_REGION": "r"})]
        assert workers.ended == ["u"]

    run_scene(scene)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (TaskFailed("Fenced", "w", data="d", do="o"), FailedTask(NOW, "Fenced", "w", "d", "o")),
        (SettingsInvalid("w", data="d", do="o"), FailedTask(NOW, "SettingsInvalid", "w", "d", "o")),
        (OSError("no fork"), FailedTask(NOW, "OSError", "OSError: no fork")),
    ],
)
def test_every_kind_of_failure_becomes_the_state_of_the_task(
    raised: Exception, expected: FailedTask
) -> None:
    async def scene(workers: FakeWorkers) -> None:
        queue = workers.queue()
        workers.answers.put_nowait(raised)
        start(queue, "u")
        await run_until(lambda: bool(workers.ended))
        assert queue.states("u") == {TASK: expected}

    run_scene(scene)


def test_unreadable_keys_fail_the_task() -> None:
    async def scene(workers: FakeWorkers) -> None:
        queue = workers.queue()
        start(queue, "u", environment_of=unreadable_secret)
        await run_until(lambda: bool(workers.ended))
        (state,) = queue.states("u").values()
        assert isinstance(state, FailedTask)
        assert state.summary == "there is no Secret keys; create it"
        assert not workers.started

    run_scene(scene)


def test_only_ended_tasks_can_be_forgotten() -> None:
    async def scene(workers: FakeWorkers) -> None:
        queue = workers.queue()
        start(queue, "u")
        queue.forget("u", TASK)
        assert queue.states("u") == {TASK: Running(NOW)}
        workers.answers.put_nowait(RESULT)
        await run_until(lambda: bool(workers.ended))
        queue.forget("u", TASK)
        assert queue.states("u") == {}
        start(queue, "u")
        assert queue.states("u") == {TASK: Running(NOW)}
        await queue.close()

    run_scene(scene)


def test_concurrency_is_limited() -> None:
    async def scene(workers: FakeWorkers) -> None:
        queue = workers.queue(max_concurrent=2)
        for i in range(3):
            start(queue, f"u{i}")
        await run_until(lambda: len(workers.started) == 2)
        workers.answers.put_nowait(RESULT)
        await run_until(lambda: len(workers.started) == 3)
        await queue.close()

    run_scene(scene)


def test_slow_tasks_do_not_delay_checks() -> None:
    async def scene(workers: FakeWorkers) -> None:
        queue = workers.queue(max_concurrent=1)
        tasks: tuple[Task, ...] = (Measure("s3://b/p"), Measure("s3://b/q"), TASK)
        for i, task in enumerate(tasks):
            start(queue, f"u{i}", task)
        await run_until(lambda: len(workers.started) == 2)
        assert [task for task, _ in workers.started] == [Measure("s3://b/p"), TASK]
        await queue.close()

    run_scene(scene)


def test_savepoint_reports_when_it_leaves_the_queue() -> None:
    """The wait of its job is limited from then on."""
    task = TakeSavepoint("s3://b/c/1", "s3://b/s")

    async def scene(workers: FakeWorkers) -> None:
        queue = workers.queue(max_concurrent=1)
        for uid in ("u", "v"):
            start(queue, uid, task)
        await run_until(lambda: workers.ended == ["u"])
        assert queue.states("u") == {task: Running(NOW, NOW)}
        assert queue.states("v") == {task: Running(NOW)}
        await queue.close()

    run_scene(scene)


def test_dropping_a_resource_cancels_its_own_tasks_only() -> None:
    async def scene(workers: FakeWorkers) -> None:
        queue = workers.queue()
        for uid in ("u", "v"):
            start(queue, uid)
        await run_until(lambda: len(workers.started) == 2)
        queue.drop("u")
        await run_until(lambda: workers.cancelled == 1)
        assert (queue.states("u"), queue.states("v")) == ({}, {TASK: Running(NOW, NOW)})
        assert not workers.ended
        await queue.close()
        assert workers.cancelled == 2

    run_scene(scene)


@pytest.mark.parametrize("started", [True, False])
def test_a_cancelled_task_can_be_started_again_once_its_process_is_dead(*, started: bool) -> None:
    """A replica that is no longer the leader must not go on deleting; it may lead again later."""

    async def scene(workers: FakeWorkers) -> None:
        queue = workers.queue()
        start(queue, "u")
        if started:
            await run_until(lambda: len(workers.started) == 1)
        queue.cancel()
        assert queue.states("u")
        await run_until(lambda: workers.ended == ["u"])
        assert not queue.states("u")
        assert workers.cancelled == started
        start(queue, "u")
        await run_until(lambda: len(workers.started) == 1 + started)
        await queue.close()

    run_scene(scene)


def test_tasks_and_results_survive_conversion_to_json() -> None:
    for task in (Measure("s3://b/p"), TASK):
        assert parse_task(task_name(task), dataclasses.asdict(task)) == task
    assert parse_result("check", dataclasses.asdict(RESULT)) == RESULT


def test_security_m3_hanging_stores_of_a_namespace_leave_slots_for_others() -> None:
    async def scene(workers: FakeWorkers) -> None:
        slots = TaskSlots()
        queue = TaskQueue(workers.ended.append, slots=slots, clock=lambda: NOW, runner=workers.run)
        checks = [dataclasses.replace(TASK, volume=f"s3://b/{number}") for number in range(9)]
        for number, check in enumerate(checks[:8]):
            queue.start(f"hanging-{number}", check, environment, 60.0, "hostile")
            queue.start(f"hanging-{number}", Measure(check.volume), environment, 60.0, "hostile")
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(workers.started) == 1 + 3
        queue.start("shop", checks[8], environment, 60.0, "shop")
        await run_until(lambda: workers.started[-1][0] == checks[8])
        await queue.close()
        assert not slots.checks._shares

    run_scene(scene)
