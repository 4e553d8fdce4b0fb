"""Pages about the library: settings, commands, errors and exit codes, failpoints."""

import ast
import enum
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields
from itertools import pairwise
from typing import Any, Final

import click

from infra.reference_docs.markdown import code, page, paragraph, sentence, summary, table
from sluicegate import errors, failpoints
from sluicegate.cli.app import app
from sluicegate.cli.options import JobGroup, variable
from sluicegate.deployment.environment import APPLY_ONLY, RUN, DriverVariable
from sluicegate.errors import ExitCode
from sluicegate.packaged_job import JobSettings, PackagedJob, packaged_jobs
from sluicegate.settings.epoch import EpochSettings
from sluicegate.settings.restart import RestartSettings
from sluicegate.settings.schema import choices_of, key_of

_SETTINGS_HEAD: Final = ("setting", "default", "meaning")

_EXIT_CODES: Final[Mapping[ExitCode, str]] = {
    ExitCode.CANNOT_START: "The job cannot start",
    ExitCode.SUPERSEDED: "Another driver, or another checkpoint",
    ExitCode.HISTORY_BROKEN: "The history is broken",
    ExitCode.LATE: "An epoch is late or stuck, or the clock was set back",
    ExitCode.FAILED: "Any other failure",
}
"""Exit codes of a driver, in the order of the page."""


def settings_page() -> str:
    """Return the page of all settings: of epochs, of restarts, and of each packaged job."""
    shared = {field.name for kind in (EpochSettings, RestartSettings) for field in fields(kind)}
    own = [field for field in fields(JobSettings) if field.name not in shared]
    return page(
        "Settings",
        "the settings classes of `sluicegate` and `sluicegate_jobs`",
        paragraph(
            "A setting is an option of the command line (`--min-pause-ms`), a key of a YAML file "
            "(`min-pause-ms`) and an environment variable (`SLUICEGATE_<JOB>_MIN_PAUSE_MS`, such as "
            f"`{variable('ip_count', 'min_pause_ms')}`). In Python it is an argument of the settings "
            "class (`min_pause_ms`). [Settings](../guides/settings.md) explains which value wins."
        ),
        "## Epochs",
        "`EpochSettings`, for every job.",
        table(_SETTINGS_HEAD, map(_setting, fields(EpochSettings))),
        "## Restarts",
        "`RestartSettings`, for `sluicegate run` and the operator.",
        table(_SETTINGS_HEAD, map(_setting, fields(RestartSettings))),
        "## Packaged jobs",
        "`JobSettings`, in addition to the settings above.",
        table(_SETTINGS_HEAD, map(_setting, own)),
        *_job_settings(),
    )


def _job_settings() -> Iterator[str]:
    """Yield a section per packaged job: its own settings, and shared ones with another default."""
    shared = {field.name: field for field in fields(JobSettings)}
    for name, entry in sorted(packaged_jobs().items()):
        job: PackagedJob = entry.load()
        own = [
            field
            for field in fields(job.settings)
            if field.name not in shared or field.default != shared[field.name].default
        ]
        yield f"### {name}"
        yield paragraph(f"{sentence(job.summary)} See [{name}](../jobs/{name}.md).")
        yield table(_SETTINGS_HEAD, map(_setting, own))


def _setting(field: Field[Any]) -> tuple[str, str, str]:
    choices = choices_of(field)
    limits = [
        f"{words} {field.metadata['limits'][name]:g}"
        for name, words in (("above", "above"), ("at_least", "at least"), ("at_most", "at most"))
        if name in field.metadata["limits"]
    ]
    meaning = sentence(field.metadata.get("help", ""))
    if choices:
        meaning += f" One of {', '.join(map(code, choices))}."
    if limits:
        meaning += f" {sentence(', '.join(limits))}"
    return code(key_of(field.name)), code(field.default), meaning


def commands_page() -> str:
    """Return the page of the command line."""
    return page(
        "Command line",
        "the click commands of `sluicegate.cli`",
        paragraph(
            "Exit codes: 0 when it is done, 1 when a check found something, otherwise the [exit code of "
            "the error](errors.md). `sluicegate COMMAND --help` prints the same text."
        ),
        *(text for name, command in app.commands.items() for text in _command((name,), command)),
    )


def _command(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=" ".join(("sluicegate", *path)))
    yield f"{'#' * (len(path) + 1)} {' '.join(path)}"
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    yield "\n\n".join(paragraph(text) for text in paragraphs if text)
    if isinstance(command, JobGroup):
        yield from _job_command(path, command)
        return
    if isinstance(command, click.Group):
        for name, nested in command.commands.items():
            yield from _command((*path, name), nested)
        return
    yield f"```\n{command.get_usage(context).removeprefix('Usage: ')}\n```"
    yield table(("option", "default", "meaning"), _options(command.params))


def _job_command(path: tuple[str, ...], command: JobGroup) -> Iterator[str]:
    """Yield the part of a command with a subcommand per job: the options that are not settings."""
    name, entry = min(packaged_jobs().items())
    job: PackagedJob = entry.load()
    nested = command.get_command(click.Context(command), name)
    assert nested is not None
    settings = {field.name for field in fields(job.settings)}
    extra = [param for param in nested.params if param.name not in settings]
    yield f"```\nsluicegate {' '.join(path)} JOB [OPTIONS]\n```"
    yield table(("option", "default", "meaning"), _options(extra))
    yield "Every [setting](settings.md) of the job is an option too."


def _options(params: list[click.Parameter]) -> Iterator[tuple[str, str, str]]:
    for param in params:
        if not isinstance(param, click.Option) or param.name == "help":
            continue
        names = "/".join((*param.opts, *param.secondary_opts))
        default = "" if param.is_flag and not param.secondary_opts else _default(param)
        meaning = sentence(param.help or "")
        if param.envvar:
            meaning += f" Environment: {code(param.envvar)}."
        yield code(names), default, meaning + (" Required." if param.required else "")


def _default(param: click.Option) -> str:
    default = param.to_info_dict()["default"]
    if isinstance(default, bool) and param.secondary_opts:
        return code((param.opts if default else param.secondary_opts)[0])
    return "" if default is None or callable(default) else code(default)


def errors_page() -> str:
    """Return the page of all errors, by the exit code of a driver that ends with one."""
    assert set(ExitCode) == _EXIT_CODES.keys(), "an exit code has no title"
    return page(
        "Errors and exit codes",
        "`sluicegate.errors`",
        paragraph(
            "Every error says what happened, what it means for the data, and what to do. A driver exits "
            "with the code of its error. Exit code 0 means that every decided epoch is in every sink. "
            "`sluicegate run` starts a driver again by its restart strategy unless the code is 64, 65 or 66, "
            "and once after `Fenced`. The operator also does so after `Fenced`, `AccessDenied` and "
            "`TargetMissing`. The second column says whether the same driver may try the epoch again "
            "(`tolerated-failures`). [When something is wrong](../operations/troubleshooting.md) says what to "
            "do."
        ),
        *(block for exit_code in _EXIT_CODES for block in _exit_code(exit_code)),
    )


def _exit_code(exit_code: ExitCode) -> Iterator[str]:
    """Yield the section of the errors with an exit code."""
    yield f"## {int(exit_code)}: {_EXIT_CODES[exit_code]}"
    yield _member_docs(ExitCode)[exit_code.name]
    rows = (
        (code(error.__name__), "yes" if error.retryable else "no", summary(error))
        for error in vars(errors).values()
        if isinstance(error, type)
        and issubclass(error, errors.SluicegateError)
        and error is not errors.SluicegateError
        and error.exit_code == exit_code
    )
    yield table(("error", "tried again", "meaning"), rows)


def _member_docs(kind: type[enum.Enum]) -> dict[str, str]:
    """Return the docstring below each member of an enum; empty where a member has none."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    docs = dict.fromkeys(kind.__members__, "")
    for member, following in pairwise(definition.body):
        match member, following:
            case ast.Assign(targets=[ast.Name(name)]), ast.Expr(ast.Constant(str(text))):
                docs[name] = " ".join(text.split())
    return docs


def failpoints_page() -> str:
    """Return the page of failpoints."""
    return page(
        "Failpoints",
        "`sluicegate.failpoints`",
        paragraph(
            f"`{failpoints.VARIABLE}` makes a process die, hang or fail at a named point, for tests and "
            "demonstrations. Its value is a list of `point[:sink][@epoch]=action[~once-file]`, separated "
            "by `;`, such as `after-decide@3=kill-group`. With a once-file, only the first process that "
            "creates the file executes the action. Executors read the same variable."
        ),
        table(
            ("failpoint", "what is true there"),
            ((code(name), sentence(text)) for name, text in failpoints.POINTS.items()),
        ),
        "Actions: `kill-group`, `kill-self`, `kill-executor`, `stop-group`, `raise`, `hang`.",
    )


def environment_page() -> str:
    """Return the page of a driver's environment variables."""
    docs = _member_docs(DriverVariable)
    return page(
        "Environment of a driver",
        "`sluicegate.deployment.environment`",
        paragraph(
            "The operator configures a driver with these variables. They can also be set by hand, and they "
            "win over what the code sets. An empty variable counts as not set. A driver in mode "
            f"`{APPLY_ONLY}` applies the decided epochs to every sink, starts no query and ends; the "
            f"default is `{RUN}`."
        ),
        table(
            ("variable", "meaning"),
            (
                (code(variable.value), sentence(docs[variable.name] or "of the driver's own pod"))
                for variable in DriverVariable
            ),
        ),
        paragraph(
            "How servers are reached: [Your own servers](../operations/servers.md), [TLS and "
            "logins](../guides/tls.md), [Checkpoints on S3](../guides/s3-checkpoints.md). Settings of a job "
            "are variables too: [Settings](settings.md)."
        ),
    )
