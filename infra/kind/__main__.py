"""`python -m infra.kind up|down|status|unbuilt|build|load|engine`: the cluster from the command line."""

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from infra.kind import cluster, load_images
from infra.offline.kind_node import docker_engine
from infra.offline.kind_node.docker_engine import NoContainers
from infra.toolchain.go_build import BuildError
from infra.toolchain.host import HostError

NO_CONTAINERS: Final = os.EX_UNAVAILABLE
"""Exit code 69, by which `.ci/run` knows a machine that cannot run the cluster from one that failed."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.kind", description="A Kubernetes cluster of one node on this machine."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("up", help="create it, with all that it needs")
    verbs.add_parser("down", help="remove it; the Docker engine stays up")
    verbs.add_parser("status", help="print the state of engine, network and cluster")
    verbs.add_parser("unbuilt", help="print what must be built first; exit 1 if anything must")
    verbs.add_parser("build", help="build that; it needs no Docker engine")
    load = verbs.add_parser(
        "load", help="load images from archives into the node, unless it has them"
    )
    load.add_argument("archives", nargs="*", type=Path, help="default: all images of this project")
    own = verbs.add_parser(
        "engine", help="the Docker engine that is started on a machine without one"
    )
    own.add_argument("wanted", choices=["up", "down"])
    return parser


def _engine(wanted: str) -> None:
    if wanted == "up":
        print(f"Docker {docker_engine.up()}")
    elif docker_engine.down():
        print("The Docker engine is stopped; its images stay.")
    else:
        print("No Docker engine of this project runs.")


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return 1 with the reason on standard error if it fails.

    The code is NO_CONTAINERS if it fails because no container can run on this machine.
    """
    options = _parser().parse_args(arguments)
    os.umask(0o022)  # files keep their modes in the node, and pods run as other users
    try:
        match options.verb:
            case "up":
                cluster.up()
            case "down":
                cluster.down()
            case "status":
                print(cluster.status())
            case "unbuilt":
                unbuilt = cluster.unbuilt()
                print(unbuilt or "Nothing must be built.")
                return 1 if unbuilt else 0
            case "build":
                cluster.build()
            case "load":
                load_images.load(options.archives or load_images.ours())
            case _:
                _engine(options.wanted)
    except (HostError, BuildError) as error:
        print(error, file=sys.stderr)
        return NO_CONTAINERS if isinstance(error, NoContainers) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
