"""`python -m infra.kind up|down|status|gap|load|engine`: the cluster from the command line.

Called by the Makefile. What each does is said in `cluster`, `loading` and `engine`.
"""

import argparse
import sys
from pathlib import Path

from infra.gobuild import BuildError
from infra.host import HostError
from infra.kind import cluster, engine, loading


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.kind", description="A Kubernetes cluster of one node on this machine."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("up", help="make it, with all that it needs")
    verbs.add_parser("down", help="remove it; the Docker engine stays up")
    verbs.add_parser("status", help="say what there is")
    verbs.add_parser("gap", help="say what takes long and is not built yet; fail if there is any")
    load = verbs.add_parser("load", help="give the node images from archives, if it lacks them")
    load.add_argument("archives", nargs="*", type=Path, help="default: all of this project's")
    own = verbs.add_parser("engine", help="the Docker engine that is started where there is none")
    own.add_argument("wanted", choices=["up", "down"])
    return parser


def _engine(wanted: str) -> None:
    if wanted == "up":
        print(f"Docker {engine.up()}")
    elif engine.down():
        print("The Docker engine is stopped; its images stay.")
    else:
        print("No Docker engine of ours runs.")


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; return 1 with the reason on standard error where it cannot."""
    options = _parser().parse_args(arguments)
    try:
        match options.verb:
            case "up":
                cluster.up()
            case "down":
                cluster.down()
            case "status":
                print(cluster.status())
            case "gap":
                gap = cluster.gap()
                print(gap or "Nothing that takes long is left to build.")
                return 1 if gap else 0
            case "load":
                loading.load(options.archives or loading.ours())
            case _:
                _engine(options.wanted)
    except (HostError, BuildError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
