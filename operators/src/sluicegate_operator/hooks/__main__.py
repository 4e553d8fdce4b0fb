"""`python -m sluicegate_operator.hooks COMMAND`: one task of an install or upgrade, then exits.

The environment says what, in JSON. `secrets` creates the Secrets that SECRETS lists, in NAMESPACE. `crds`
creates and upgrades the CustomResourceDefinitions to those of VERSION. METADATA has labels and annotations.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from argparse import ArgumentParser, Namespace

from sluicegate.errors import SettingsInvalid, SluicegateError
from sluicegate_operator.hooks import crds
from sluicegate_operator.hooks.requests import Requests
from sluicegate_operator.hooks.secrets import SecretStore, spec_of
from sluicegate_operator.kube.client import ConfigError, connect

log = logging.getLogger("sluicegate_operator.hooks")


def main(arguments: list[str] | None = None) -> int:
    """Run a task; return its exit code."""
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s", stream=sys.stderr)
    parser = ArgumentParser(prog="python -m sluicegate_operator.hooks", description=__doc__)
    parser.add_argument("command", choices=("secrets", "crds"))
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
    metadata = json.loads(os.environ["METADATA"])
    try:
        requests = Requests(api, options.timeout_s)
        if options.command == "crds":
            await crds.upgrade(requests, metadata, os.environ["VERSION"])
        else:
            specs = [spec_of(values) for values in json.loads(os.environ["SECRETS"])]
            await SecretStore(requests, os.environ["NAMESPACE"], metadata).create(specs)
    finally:
        await api.close()


if __name__ == "__main__":
    sys.exit(main())
