"""`python -m sluicegate_operator`: runs the operator until SIGTERM or SIGINT.

Not here: anything that it does (`service.operator`).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from argparse import ArgumentParser, Namespace

from sluicegate.protocol.errors import SluicegateError
from sluicegate_operator.cluster.client import connect
from sluicegate_operator.service.logs import JSON, TEXT, set_up
from sluicegate_operator.service.operator import Operator, OperatorSettings

log = logging.getLogger("sluicegate_operator")


def main(arguments: list[str] | None = None) -> int:
    """Run the operator; return its exit code."""
    given = _parser().parse_args(arguments)
    set_up(given.log_format, given.log_level.upper())
    if not given.all_namespaces and not given.namespace:
        log.error("which namespaces? Give --namespace NS, once or more, or --all-namespaces")
        return 64
    try:
        asyncio.run(_run(given))
    except SluicegateError as error:
        log.error("%s: %s", type(error).__name__, error)
        return error.exit_code
    return 0


async def _run(given: Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    api = await connect(given.kubeconfig)
    named = {"identity": given.identity} if given.identity else {}
    settings = OperatorSettings(
        namespaces=tuple(given.namespace or ()),
        lease_namespace=given.lease_namespace,
        lease_name=given.lease_name,
        port=given.port,
        **named,
    )
    gc.freeze()  # what was imported stays: it need not be looked through again
    try:
        await Operator(api, settings).run(stop)
    finally:
        await api.close()


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m sluicegate_operator", description=__doc__)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--namespace", action="append", metavar="NS", help="serve this one; repeat")
    where.add_argument("--all-namespaces", action="store_true", help="serve the whole cluster")
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="default: this pod's")
    parser.add_argument("--lease-namespace", default="sluicegate-system", metavar="NS")
    parser.add_argument("--lease-name", default="sluicegate-operator", metavar="NAME")
    parser.add_argument(
        "--identity", default="", metavar="NAME", help="of this pod; default: new at each start"
    )
    parser.add_argument("--port", type=int, default=8080, help="of health and metrics")
    parser.add_argument("--log-format", choices=(TEXT, JSON), default=JSON)
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
