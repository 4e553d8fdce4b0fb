"""`python -m sluicegate_operator.hooks COMMAND`: one task of an install or upgrade, then exits.

`secrets` creates the Secrets that the environment variable SECRETS lists as JSON, with the labels and annotations
of METADATA, in NAMESPACE.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from argparse import ArgumentParser, Namespace

from sluicegate.errors import SettingsInvalid, SluicegateError
from sluicegate_operator.hooks.secrets import SecretStore, spec_of
from sluicegate_operator.kube.client import ConfigError, connect

log = logging.getLogger("sluicegate_operator.hooks")


def main(arguments: list[str] | None = None) -> int:
    """Run a task; return its exit code."""
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s", stream=sys.stderr)
    parser = ArgumentParser(prog="python -m sluicegate_operator.hooks", description=__doc__)
    parser.add_argument("command", choices=("secrets",))
    parser.add_argument("--kubeconfig", default="", help="default: the pod's service account")
    parser.add_argument("--timeout-s", type=float, default=120.0)
    try:
        asyncio.run(_run(parser.parse_args(arguments)))
    except SluicegateError as error:
        log.error("%s: %s", type(error).__name__, error)
        return error.exit_code
    return 0


async def _run(options: Namespace) -> None:
    try:
        api = await connect(options.kubeconfig)
    except ConfigError as error:
        raise SettingsInvalid(
            f"the address of the API server cannot be read: {error}",
            data="nothing was changed",
            do="run in a pod with a service account, or pass --kubeconfig FILE",
        ) from error
    try:
        specs = [spec_of(values) for values in json.loads(os.environ["SECRETS"])]
        namespace, metadata = os.environ["NAMESPACE"], json.loads(os.environ["METADATA"])
        await SecretStore(api, namespace, metadata, options.timeout_s).create(specs)
    finally:
        await api.close()


if __name__ == "__main__":
    sys.exit(main())
