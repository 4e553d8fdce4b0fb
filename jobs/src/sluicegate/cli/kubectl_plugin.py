"""`kubectl sluicegate`: what StreamingJobs do and why, and the actions of a night on call.

kubectl finds the program `kubectl-sluicegate` on the PATH. Everything goes through kubectl itself,
so the context, the login and the rights are those of the person who asks. Each change is printed as
the kubectl command that makes it.
"""

from __future__ import annotations

import datetime as dt
import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import click

from sluicegate.cli.job_report import (
    Resource,
    console_page,
    describe,
    driver_pod,
    spark_ui_port,
    table,
)
from sluicegate.deployment.environment import DriverVariable
from sluicegate.deployment.job_actions import (
    API,
    JOBS,
    SAVEPOINTS,
    Action,
    patch_arguments,
    savepoint_manifest,
    savepoint_name,
    spec_change,
)

_GROUP = API.partition("/")[0]
_JOBS, _SAVEPOINTS = f"{JOBS}.{_GROUP}", f"{SAVEPOINTS}.{_GROUP}"
CONSOLES = "app.kubernetes.io/part-of=sluicegate,app.kubernetes.io/component=console"
"""The labels of the consoles' Services."""


@dataclass(frozen=True)
class Kubectl:
    """kubectl with the flags that choose the cluster and the namespace."""

    flags: tuple[str, ...]

    def read(self, *arguments: str) -> dict[str, Any]:
        """Return the JSON of a command that only reads."""
        result = _run(self._command(*arguments, "--output=json"), capture=True)
        if result.returncode:
            sys.exit(result.returncode)  # kubectl has printed why
        loaded: dict[str, Any] = json.loads(result.stdout)
        return loaded

    def change(self, *arguments: str, stdin: str | None = None) -> None:
        """Print and run a command; its output goes to the terminal."""
        shown = f" <<'EOF'\n{stdin}\nEOF" if stdin else ""
        click.echo(f"$ {shlex.join(self._command(*arguments))}{shown}", err=True)
        self.hand_over(*arguments, stdin=stdin)

    def hand_over(self, *arguments: str, stdin: str | None = None) -> None:
        """Run a command at the terminal, and exit with its code if it fails."""
        code = _run(self._command(*arguments), stdin=stdin).returncode
        if code:
            sys.exit(code)

    def _command(self, *arguments: str) -> list[str]:
        return ["kubectl", *self.flags, *arguments]


def _run(
    command: list[str], *, stdin: str | None = None, capture: bool = False
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            input=stdin,
            stdout=subprocess.PIPE if capture else None,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise click.ClickException(
            "kubectl was not found on the PATH; nothing was read or changed; install kubectl"
        ) from error


@click.group(context_settings={"max_content_width": 110})
@click.version_option(package_name="sluicegate")
@click.option("--namespace", "-n", help="The namespace; default: that of the kubectl context.")
@click.option("--context", "cluster", help="The kubectl context; default: the current one.")
@click.option("--kubeconfig", help="The kubeconfig file; default: that of kubectl.")
@click.pass_context
def app(
    context: click.Context, namespace: str | None, cluster: str | None, kubeconfig: str | None
) -> None:
    """Show what StreamingJobs do and why; suspend, restart and save them."""
    options = {"namespace": namespace, "context": cluster, "kubeconfig": kubeconfig}
    context.obj = Kubectl(tuple(f"--{name}={value}" for name, value in options.items() if value))


@app.command()
@click.option("--all-namespaces", "-A", is_flag=True, help="The jobs of all namespaces.")
@click.pass_obj
def status(kubectl: Kubectl, *, all_namespaces: bool) -> None:
    """List the jobs, those with a problem first, each with why."""
    everywhere = ("--all-namespaces",) if all_namespaces else ()
    jobs: list[Resource] = kubectl.read("get", _JOBS, *everywhere)["items"]
    for line in table(jobs, _now(), namespaces=all_namespaces):
        click.echo(line)


@app.command()
@click.argument("job")
@click.pass_obj
def why(kubectl: Kubectl, job: str) -> None:
    """Show what a job does, what is wrong with it, and why its drivers ended."""
    resource = kubectl.read("get", _JOBS, job)
    selector = f"involvedObject.kind=StreamingJob,involvedObject.name={job}"
    events = kubectl.read("get", "events", f"--field-selector={selector}")["items"]
    for line in describe(resource, events, _now()):
        click.echo(line)


@app.command(context_settings={"ignore_unknown_options": True})
@click.argument("job")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def epochs(kubectl: Kubectl, job: str, arguments: tuple[str, ...]) -> None:
    """List the decided epochs of a job, in the pod of its running driver.

    With an epoch as argument, show it, as `sluicegate epochs show` does; the other arguments are
    those of `sluicegate epochs`.
    """
    pod = driver_pod(kubectl.read("get", _JOBS, job))
    if pod is None:
        raise click.ClickException(
            f"{job} has had no driver yet, so it has no epochs; `kubectl sluicegate why {job}` says "
            "what it waits for"
        )
    command = "show" if arguments and arguments[0].isdigit() else "list"
    python = f'exec python3 -m sluicegate.cli epochs {command} "${DriverVariable.CHECKPOINT}" "$@"'
    kubectl.hand_over(
        "exec", pod, "--container=driver", "--", "sh", "-c", python, "sluicegate", *arguments
    )


@app.command()
@click.argument("job")
@click.option("--name", help="Name of the Savepoint; default: the job's with the time.")
@click.option(
    "--stop",
    is_flag=True,
    help="Stop the job at the savepoint and seal its checkpoint, so that a new job can take over.",
)
@click.option("--timeout-s", default=600, help="How long to wait until it is taken; 0: not at all.")
@click.pass_obj
def savepoint(kubectl: Kubectl, job: str, name: str | None, *, stop: bool, timeout_s: int) -> None:
    """Take a savepoint of a job."""
    name = name or savepoint_name(job, _now())
    manifest = json.dumps(savepoint_manifest(name, job, stop=stop), indent=2)
    create = "create", "--filename=-"
    if stop:  # otherwise the job is started again afterwards, and fails with Sealed
        kubectl.hand_over(*create, "--dry-run=server", stdin=manifest)
        _change(kubectl, job, Action.SUSPEND)
    try:
        kubectl.change(*create, stdin=manifest)
    except SystemExit:
        if stop:
            command = shlex.join(["kubectl", "sluicegate", *kubectl.flags, "resume", job])
            click.echo(
                f"kubectl did not create Savepoint {name}, and {job} is suspended; without the Savepoint "
                f"nothing is sealed; check that it does not exist, and start {job} again: {command}",
                err=True,
            )
        raise
    if timeout_s:
        kubectl.change(
            "wait", f"{_SAVEPOINTS}/{name}", "--for=condition=Ready", f"--timeout={timeout_s}s"
        )


@app.command()
@click.argument("job")
@click.pass_obj
def suspend(kubectl: Kubectl, job: str) -> None:
    """Stop the driver at the end of its epoch; the job keeps its checkpoint."""
    _change(kubectl, job, Action.SUSPEND)


@app.command()
@click.argument("job")
@click.pass_obj
def resume(kubectl: Kubectl, job: str) -> None:
    """Start a suspended job again."""
    _change(kubectl, job, Action.RESUME)


@app.command()
@click.argument("job")
@click.pass_obj
def restart(kubectl: Kubectl, job: str) -> None:
    """Replace the driver at the end of its epoch; a failed job starts again."""
    _change(kubectl, job, Action.RESTART, kubectl.read("get", _JOBS, job))


@app.command("spark-ui")
@click.argument("job")
@click.option("--port", default=4040, help="The local port.", show_default=True)
@click.pass_obj
def spark_ui(kubectl: Kubectl, job: str, port: int) -> None:
    """Forward a local port to Spark's own UI in the running driver of a job, until Ctrl-C.

    The job needs `spark.ui.enabled: "true"` in its sparkConf.
    """
    resource = kubectl.read("get", _JOBS, job)
    pod, remote = driver_pod(resource), spark_ui_port(resource)
    if remote is None:
        raise click.ClickException(
            f"Spark's UI is off in {job}; nothing was changed; set spark.ui.enabled in spec.sparkConf to "
            '"true", which replaces the driver at the end of its epoch'
        )
    if pod is None:
        raise click.ClickException(
            f"{job} has had no driver yet; `kubectl sluicegate why {job}` says what it waits for"
        )
    click.echo(f"http://127.0.0.1:{port}/StreamingQuery/", err=True)
    kubectl.hand_over("port-forward", f"pod/{pod}", f"{port}:{remote}")


@app.command()
@click.argument("job", default="")
@click.option("--service", default="", help="The console's Service, if there are several consoles.")
@click.option("--port", default=8321, help="The local port.", show_default=True)
@click.pass_obj
def ui(kubectl: Kubectl, job: str, service: str, port: int) -> None:
    """Forward a local port to the console, until Ctrl-C, and print its address.

    With a JOB, which may be NAMESPACE/NAME, that of its page.
    """
    consoles = kubectl.read("get", "services", f"--selector={CONSOLES}")["items"]
    names = {one["metadata"]["name"]: one["metadata"]["namespace"] for one in consoles}
    name = service or next(iter(names), "")
    if not names:
        raise click.ClickException(
            "this namespace has no console; nothing was changed; name its namespace with -n, or install it: "
            "`helm install console charts/console --set 'addresses={s3://BUCKET/PREFIX}'`, or console.enabled "
            "of the chart sluicegate"
        )
    if name not in names or (len(names) > 1 and not service):
        raise click.ClickException(
            f"this namespace has these consoles: {', '.join(sorted(names))}; nothing was changed; choose "
            "one with --service"
        )
    click.echo(console_page(f"http://127.0.0.1:{port}", job, names[name]), err=True)
    kubectl.hand_over("port-forward", f"service/{name}", f"{port}:http")


def _change(kubectl: Kubectl, job: str, action: Action, resource: Resource | None = None) -> None:
    kubectl.change(*patch_arguments(job, spec_change(action, resource or {})))


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def main() -> None:
    """Run the plugin as `kubectl sluicegate`."""
    app(prog_name="kubectl sluicegate")
