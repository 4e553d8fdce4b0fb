"""Runs one task on an object store in a child process, which has the volume's keys and no other's.

The child is killed when the time is up or the caller is cancelled, and ends by itself when this
process does. Keys travel by its environment only: not by arguments, nor into an error. Not here:
what the child does (`child`). Called by `desk`, and for a job's own checkpoint by whoever wires it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sluicegate.protocol.errors import SluicegateError
from sluicegate_operator.resources.addresses import AUTHORITY_VARIABLE
from sluicegate_operator.volumes.tasks import Result, Task, name_of_task, result_from, to_json

_KEPT = 2000
"""Characters of what a child said that are kept for an error: the end is what matters."""

_IDENTITY = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
)
"""Of the operator's own pod: for volumes that name no Secret."""

AUTHORITY_TEXT = "SLUICEGATE_AUTHORITY"
"""In what `run` is given: the certificate of who signs the store's, in PEM."""

_SECRET = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - a variable's name


class TaskFailed(SluicegateError):
    """A task on an object store failed; `kind` is the class of the error in the child.

    Kinds of our own: TaskTimeout (killed, since it took too long) and TaskDied (it ended without
    a word, such as for want of memory).
    """

    restartable = True

    def __init__(self, kind: str, what: str, *, data: str = "", do: str = "") -> None:
        self.kind = kind
        super().__init__(what, data=data, do=do)


async def run(task: Task, environment: Mapping[str, str], timeout_s: float) -> Result:
    """Do a task and return its result.

    Args:
        task: what.
        environment: the volume's variables (`service.access`); those of this process
            are not handed on, but for its identity where no key is given.
        timeout_s: then the child is killed.

    Raises:
        TaskFailed: it failed, was killed, or died; it can be run again.
    """
    with _given(environment) as given:
        return await _run(task, given, timeout_s)


async def _run(task: Task, environment: Mapping[str, str], timeout_s: float) -> Result:
    name = name_of_task(task)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sluicegate_operator.store",
        name,
        "--tethered",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(environment),
    )
    try:
        out, said = await asyncio.wait_for(_talk(child, json.dumps(to_json(task))), timeout_s)
    except TimeoutError as error:
        raise TaskFailed(
            "TaskTimeout",
            f"{name} was not done in {timeout_s:g} s, and was ended",
            data="part of it may be done; doing it again does the rest",
            do="look at the store: it does not answer, or is slow",
        ) from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    hidden = environment.get(_SECRET, "")
    texts = (_without(text.decode(errors="replace"), hidden) for text in (out, said))
    return _understood(name, child.returncode, *texts)


async def _talk(child: asyncio.subprocess.Process, request: str) -> tuple[bytes, bytes]:
    """Hand the request over and read all answers; stdin stays open for as long as we live."""
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        child.stdin.write(f"{request}\n".encode())
        await child.stdin.drain()
    except ConnectionError:
        pass  # it has ended already; what it said says why
    out, said = await asyncio.gather(child.stdout.read(), child.stderr.read())
    await child.wait()
    child.stdin.close()
    return out, said


@contextmanager
def _given(environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Put the authority's certificate into a file, for as long as a child may read it."""
    text = environment.get(AUTHORITY_TEXT)
    if text is None:
        yield environment
        return
    with tempfile.NamedTemporaryFile("w", suffix=".crt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        kept = {key: value for key, value in environment.items() if key != AUTHORITY_TEXT}
        yield {**kept, AUTHORITY_VARIABLE: file.name}


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    if "AWS_ACCESS_KEY_ID" not in given:
        kept |= {k: os.environ[k] for k in _IDENTITY if k in os.environ}
    return kept | dict(given)


def _understood(name: str, code: int | None, out: str, said: str) -> Result:
    try:
        answer = json.loads(out)
        error = answer.get("error")
        if error is None:
            return result_from(name, answer["result"])
    except (AttributeError, LookupError, TypeError, ValueError) as broken:
        raise TaskFailed(
            "TaskDied",
            f"{name} ended with {code} and no answer: {said[-_KEPT:].strip() or 'it said nothing'}",
            data="part of it may be done; doing it again does the rest",
            do="see the operator's memory limit; if it happens again, report it",
        ) from broken
    raise TaskFailed(error["kind"], error["what"], data=error["data"], do=error["do"])


def _without(text: str, secret: str) -> str:
    return text.replace(secret, "***") if secret else text
