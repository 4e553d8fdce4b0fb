"""The desk of tasks: what runs, how it ended, and whose turn it is. Nothing is run for real here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import pytest

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.store.desk import TaskDesk
from sluicegate_operator.store.running import TaskFailed
from sluicegate_operator.volumes.tasks import (
    Broken,
    Done,
    Exists,
    Found,
    Measure,
    Running,
    Task,
    name_of_task,
    result_from,
    task_from,
    to_json,
)

NOW = 1_800_000_000.0
TASK = Exists("s3://b/p")


class Bench:
    """Stands in for child processes: each task waits for its answer."""

    def __init__(self) -> None:
        self.begun: list[tuple[Task, Mapping[str, str]]] = []
        self.answers: asyncio.Queue[object] = asyncio.Queue()
        self.ended: list[str] = []
        self.cancelled = 0

    async def run(self, task: Task, environment: Mapping[str, str], _timeout_s: float) -> object:
        self.begun.append((task, environment))
        try:
            answer = await self.answers.get()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def desk(self, at_once: int = 4) -> TaskDesk:
        return TaskDesk(self.ended.append, at_once=at_once, clock=lambda: NOW, runner=self.run)


async def keys() -> Mapping[str, str]:
    return {"AWS_REGION": "r"}


async def no_keys() -> Mapping[str, str]:
    raise SettingsInvalid("there is no Secret keys", data="nothing", do="make it")


async def turns(until: Callable[[], bool]) -> None:
    """Let the loop go on until something is so."""
    async with asyncio.timeout(10):
        while not until():  # noqa: ASYNC110 - the loop itself is what is waited for
            await asyncio.sleep(0)


def played(scene: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        await scene(Bench())

    asyncio.run(play())


def begin(
    desk: TaskDesk, uid: str, task: Task = TASK, given: Callable[[], Awaitable[Any]] = keys
) -> None:
    desk.begin(uid, task, given, 60.0)


def test_a_task_is_begun_once_and_its_end_told() -> None:
    async def scene(bench: Bench) -> None:
        desk = bench.desk()
        begin(desk, "u")
        begin(desk, "u")
        assert desk.of("u") == {TASK: Running(NOW)}
        bench.answers.put_nowait(Found(exists=True))
        await turns(lambda: bool(bench.ended))
        begin(desk, "u")
        assert desk.of("u") == {TASK: Done(NOW, Found(exists=True))}
        assert bench.begun == [(TASK, {"AWS_REGION": "r"})]
        assert bench.ended == ["u"]

    played(scene)


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (TaskFailed("Fenced", "w", data="d", do="o"), Broken(NOW, "Fenced", "w", "d", "o")),
        (SettingsInvalid("w", data="d", do="o"), Broken(NOW, "SettingsInvalid", "w", "d", "o")),
        (OSError("no fork"), Broken(NOW, "OSError", "OSError: no fork")),
    ],
)
def test_however_a_task_fails_it_is_told(raised: Exception, told: Broken) -> None:
    async def scene(bench: Bench) -> None:
        desk = bench.desk()
        bench.answers.put_nowait(raised)
        begin(desk, "u")
        await turns(lambda: bool(bench.ended))
        assert desk.of("u") == {TASK: told}

    played(scene)


def test_keys_that_cannot_be_read_fail_the_task() -> None:
    async def scene(bench: Bench) -> None:
        desk = bench.desk()
        begin(desk, "u", given=no_keys)
        await turns(lambda: bool(bench.ended))
        (state,) = desk.of("u").values()
        assert isinstance(state, Broken)
        assert state.said == "there is no Secret keys; make it"
        assert not bench.begun

    played(scene)


def test_what_ended_is_forgotten_when_told_and_what_runs_is_not() -> None:
    async def scene(bench: Bench) -> None:
        desk = bench.desk()
        begin(desk, "u")
        desk.forget("u", TASK)
        assert desk.of("u") == {TASK: Running(NOW)}
        bench.answers.put_nowait(Found(exists=False))
        await turns(lambda: bool(bench.ended))
        desk.forget("u", TASK)
        assert desk.of("u") == {}
        begin(desk, "u")
        assert desk.of("u") == {TASK: Running(NOW)}
        await desk.close()

    played(scene)


def test_no_more_run_at_once_than_may() -> None:
    async def scene(bench: Bench) -> None:
        desk = bench.desk(at_once=2)
        for i in range(3):
            begin(desk, f"u{i}")
        await turns(lambda: len(bench.begun) == 2)
        bench.answers.put_nowait(Found(exists=True))
        await turns(lambda: len(bench.begun) == 3)
        await desk.close()

    played(scene)


def test_slow_tasks_do_not_keep_quick_ones_waiting() -> None:
    async def scene(bench: Bench) -> None:
        desk = bench.desk(at_once=1)
        tasks: tuple[Task, ...] = (Measure("s3://b/p"), Measure("s3://b/q"), TASK)
        for i, task in enumerate(tasks):
            begin(desk, f"u{i}", task)
        await turns(lambda: len(bench.begun) == 2)
        assert [task for task, _ in bench.begun] == [Measure("s3://b/p"), TASK]
        await desk.close()

    played(scene)


def test_a_resource_that_is_gone_ends_its_tasks_and_no_others() -> None:
    async def scene(bench: Bench) -> None:
        desk = bench.desk()
        for uid in ("u", "v"):
            begin(desk, uid)
        await turns(lambda: len(bench.begun) == 2)
        desk.drop("u")
        await turns(lambda: bench.cancelled == 1)
        assert (desk.of("u"), desk.of("v")) == ({}, {TASK: Running(NOW)})
        assert not bench.ended
        await desk.close()
        assert bench.cancelled == 2

    played(scene)


def test_a_task_and_its_result_survive_the_way_as_json() -> None:
    for task in (Measure("s3://b/p"), TASK):
        assert task_from(name_of_task(task), to_json(task)) == task
    assert result_from("exists", to_json(Found(exists=True))) == Found(exists=True)
