"""`python -m sluicegate_operator`: runs the operator until SIGTERM or SIGINT.

Logs go to standard error, as text for people or as JSON for machines. No message contains a secret.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from pythonjsonlogger.json import JsonFormatter

from sluicegate.errors import SettingsInvalid, SluicegateError
from sluicegate_operator.controllers.limits import AmbientPlace, Limits
from sluicegate_operator.kube.client import ConfigError, connect
from sluicegate_operator.operator import Operator, OperatorSettings

TEXT, JSON = "text", "json"


def configure_logging(form: str, level: str) -> None:
    """Log to standard error from a level on. JSON is one object a line: time, level, logger, message."""
    handler = logging.StreamHandler(sys.stderr)
    if form == JSON:
        fields = "%(asctime)s %(levelname)s %(name)s %(message)s"
        renamed = {"asctime": "time", "levelname": "level", "name": "logger"}
        handler.setFormatter(JsonFormatter(fields, rename_fields=renamed))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("kubernetes").setLevel(logging.WARNING)


log = logging.getLogger("sluicegate_operator")


def main(arguments: list[str] | None = None) -> int:
    """Run the operator; return its exit code."""
    options = _parser().parse_args(arguments)
    configure_logging(options.log_format, options.log_level.upper())
    if not options.all_namespaces and not options.namespace:
        log.error("no namespaces to serve: pass --namespace NS, once or more, or --all-namespaces")
        return 64
    try:
        asyncio.run(_run(options))
    except SluicegateError as error:
        log.error("%s: %s", type(error).__name__, error)
        return error.exit_code
    return 0


async def _run(options: Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        api = await connect(options.kubeconfig)
    except ConfigError as error:
        raise SettingsInvalid(
            f"the address of the API server cannot be read: {error}",
            data="nothing was started",
            do="run in a pod with a service account, or pass --kubeconfig FILE",
        ) from error
    named = {"identity": options.identity} if options.identity else {}
    settings = OperatorSettings(
        namespaces=tuple(options.namespace or ()),
        limits=_limits(options),
        lease_namespace=options.lease_namespace,
        lease_name=options.lease_name,
        port=options.port,
        console_url=options.console_url,
        **named,
    )
    gc.freeze()  # imported modules stay in memory, so the garbage collector may skip them
    try:
        await Operator(api, settings).run(stop)
    finally:
        await api.close()


def _limits(options: Namespace) -> Limits:
    """Return the limits; raises SettingsInvalid if an option cannot be read."""
    namespace, _, name = options.own_account.partition("/")
    return Limits(
        account=(namespace, name),
        ambient=tuple(map(AmbientPlace.parse, options.ambient_identity)),
        endpoints=tuple(options.store_endpoint),
        own_namespace_served=options.serve_own_namespace,
        job_network_policies=not options.no_job_network_policy,
        upgrades=options.max_concurrent_upgrades,
    )


def _number(text: str) -> int:
    """Return a number that is not negative; raises ArgumentTypeError for anything else."""
    if not (text.isascii() and text.isdecimal()):
        raise ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return int(text)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m sluicegate_operator", description=__doc__)
    add, scope = parser.add_argument, parser.add_mutually_exclusive_group()
    scope.add_argument(
        "--namespace", action="append", metavar="NS", help="namespace to serve; may be repeated"
    )
    scope.add_argument("--all-namespaces", action="store_true", help="serve the whole cluster")
    add("--kubeconfig", default="", metavar="FILE", help="default: the service account of this pod")
    add("--lease-namespace", default="sluicegate-system", metavar="NS")
    add("--lease-name", default="sluicegate-operator", metavar="NAME")
    identity = "holder identity in the Lease; default: new at each start"
    add("--identity", default="", metavar="NAME", help=identity)
    add(
        "--own-account",
        default="",
        metavar="NS/NAME",
        help="ServiceAccount of the operator: no job may run as it, or in its namespace",
    )
    add(
        "--serve-own-namespace",
        action="store_true",
        help="let jobs run in the operator's own namespace, where their drivers may create pods",
    )
    add(
        "--ambient-identity",
        action="append",
        default=[],
        metavar="NS=s3://BUCKET/PREFIX",
        help="where volumes of a namespace without a Secret may use the operator's own cloud identity; "
        "may be repeated (default: nowhere)",
    )
    add(
        "--store-endpoint",
        action="append",
        default=[],
        metavar="URL",
        help="endpoint (scheme://host[:port]) that volumes may name; may be repeated (default: any but "
        "internal addresses)",
    )
    add(
        "--no-job-network-policy",
        action="store_true",
        help="create no NetworkPolicy for each job",
    )
    add(
        "--max-concurrent-upgrades",
        type=_number,
        default=Limits().upgrades,
        metavar="N",
        help="how many running jobs may be upgraded at a time; 0: all (default: %(default)s)",
    )
    add(
        "--console-url",
        default="",
        metavar="URL",
        help="address of the console; an Event about a job that a person acts on then links to it",
    )
    add("--port", type=int, default=8080, help="port of health and metrics")
    add("--log-format", choices=(TEXT, JSON), default=JSON)
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    return parser


if __name__ == "__main__":
    sys.exit(main())
