"""Runs one task on an object store in a worker process that has the keys of one volume and no others.

The process is killed when its time is up or the caller is cancelled, and it exits by itself when this
process does. Keys travel in its environment only: never in arguments, and never in an error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict

from sluicegate.errors import SluicegateError
from sluicegate_operator.api.locations import CA_FILE_VARIABLE
from sluicegate_operator.reconcile.storage_tasks import Result, Task, parse_result, task_name

logger = logging.getLogger(__name__)

_LOG_CHARACTERS = 2000
"""How much of a process's log is logged; the end matters most."""

_IDENTITY_VARIABLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
)
"""Variables of the operator's own pod, passed on for volumes without a Secret."""

AUTHORITY_TEXT = "SLUICEGATE_AUTHORITY"
"""Variable in the argument of `run` with the PEM certificate of the store's CA."""

_SECRET = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - a variable's name


class TaskFailed(SluicegateError, retryable=True):
    """A task on an object store failed; `kind` is the class of the error in the worker process.

    Two kinds come from here: TaskTimeout (the process took too long and was killed) and TaskDied (it ended
    without an answer, for example because it ran out of memory).
    """

    def __init__(self, kind: str, what: str, *, data: str = "", do: str = "") -> None:
        self.kind = kind
        super().__init__(what, data=data, do=do)


async def run(task: Task, environment: Mapping[str, str], timeout_s: float) -> Result:
    """Run a task and return its result.

    Args:
        task: what to do.
        environment: the volume's variables (`controllers.credentials`). Variables of this process that
            start with AWS_ are not passed on, except for its identity if there is no key.
        timeout_s: the process is killed after this time.

    Raises:
        TaskFailed: it failed, was killed, or died; it can be run again.
    """
    name = task_name(task)
    with _with_ca_file(environment) as variables:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sluicegate_operator.storage_tasks", name, "--tethered"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(variables),
        )
        try:
            request = json.dumps(asdict(task))
            out, log = await asyncio.wait_for(_communicate(process, request), timeout_s)
        except TimeoutError as error:
            raise TaskFailed(
                "TaskTimeout",
                f"the task {name} was not finished within {timeout_s:g} s and was killed",
                data="a part of it may be done; a retry does the rest",
                do="check the store: it is slow or does not answer",
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    secret = environment.get(_SECRET, "")
    texts = (_redact(text.decode(errors="replace"), secret) for text in (out, log))
    return _parse_answer(name, process.returncode, *texts)


async def _communicate(process: asyncio.subprocess.Process, request: str) -> tuple[bytes, bytes]:
    """Send the request and read all output; stdin stays open as long as this process lives."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdin.write(f"{request}\n".encode())
        await process.stdin.drain()
    except ConnectionError:
        pass  # the process has already ended; its log says why
    out, log = await asyncio.gather(process.stdout.read(), process.stderr.read())
    await process.wait()
    process.stdin.close()
    return out, log


@contextmanager
def _with_ca_file(environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Put the CA certificate into a file as long as the worker process may read it."""
    text = environment.get(AUTHORITY_TEXT)
    if text is None:
        yield environment
        return
    with tempfile.NamedTemporaryFile("w", suffix=".crt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        kept = {key: value for key, value in environment.items() if key != AUTHORITY_TEXT}
        yield {**kept, CA_FILE_VARIABLE: file.name}


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    if "AWS_ACCESS_KEY_ID" not in variables:
        kept |= {k: os.environ[k] for k in _IDENTITY_VARIABLES if k in os.environ}
    return kept | dict(variables)


def _parse_answer(name: str, code: int | None, out: str, log: str) -> Result:
    try:
        answer = json.loads(out)
        error = answer.get("error")
        if error is None:
            return parse_result(name, answer["result"])
    except (AttributeError, LookupError, TypeError, ValueError) as broken:
        # not in a status: a traceback may quote the endpoint
        logger.error(
            "the task %s died: %s", name, log[-_LOG_CHARACTERS:].strip() or "its log is empty"
        )
        raise TaskFailed(
            "TaskDied",
            f"the task {name} ended with exit code {code} and without an answer",
            data="a part of it may be done; a retry does the rest",
            do="read the operator's log and check its memory limit; report a bug if it happens again",
        ) from broken
    raise TaskFailed(error["kind"], error["what"], data=error["data"], do=error["do"])


def _redact(text: str, secret: str) -> str:
    return text.replace(secret, "***") if secret else text
