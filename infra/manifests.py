"""Plain manifests of the operator, rendered from its chart: `python -m infra.manifests`, or `make manifests`.

For installs without Helm: the Namespace, the CustomResourceDefinitions, permissions, Deployment and the
drivers' ServiceAccount in one file for `kubectl apply -f`. A release contains the file with the defaults. It is
not committed, so that the chart is the only source.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from infra.chart_docs import helm
from infra.workspace import CHECKOUT, work_folder

NAME: Final = "sluicegate-operator"
NAMESPACE: Final = "sluicegate-system"
CRDS: Final = CHECKOUT / "operators" / "crds"
FILE: Final = "sluicegate-operator.yaml"


def values_of(
    namespaces: Sequence[str] = ("default",),
    drivers: Sequence[str] = ("default",),
    registry: str = "",
    secrets: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the chart's values for an install.

    Args:
        namespaces: whose jobs the operator runs; none: those of all namespaces, where it may then create pods
            and read any Secret.
        drivers: namespaces in which the drivers' ServiceAccount is created.
        registry: host of the registry of the image; empty: `localhost`, images loaded into the nodes.
        secrets: that the operator may read in the namespaces; none: the chart's default.
    """
    watch = {"all": not namespaces, "namespaces": list(namespaces)}
    return {
        "namespace": {"create": True},
        "watch": watch | ({"secrets": list(secrets)} if secrets else {}),
        "driverAccounts": list(drivers),
        "image": {"registry": registry},
    }


def render(values: Mapping[str, Any], folder: Path = helm.FOLDER) -> str:
    """Return the manifests and the CRDs as YAML; `folder` has the vendored charts (`helm.vendor`)."""
    given = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
    options = ["--namespace", NAMESPACE, "--no-hooks", *given]
    definitions = (path.read_text(encoding="utf-8") for path in sorted(CRDS.glob("*.yaml")))
    chart = helm.run(["template", NAME, str(folder / "operator"), *options])
    return "\n---\n".join([chart, *definitions])


def main(arguments: list[str] | None = None) -> int:
    """Write the manifests into `.work/manifests`."""
    parser = argparse.ArgumentParser(prog="python -m infra.manifests", description=__doc__)
    parser.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="NS",
        help="run the jobs of this namespace, which must exist; may be repeated (default: `default`)",
    )
    parser.add_argument(
        "--all-namespaces",
        action="store_true",
        help="run the jobs of all namespaces: the operator may create pods and read any Secret there",
    )
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="NAME",
        help="let the operator read this Secret in these namespaces; may be repeated (default: "
        "checkpoint-store)",
    )
    parser.add_argument(
        "--drivers",
        action="append",
        metavar="NS",
        help="create the drivers' ServiceAccount in this namespace; may be repeated (default: the "
        "namespaces served, or `default`)",
    )
    parser.add_argument("--registry", default="", help="host of the registry of the image")
    options = parser.parse_args(arguments)
    if options.all_namespaces and options.namespace:
        parser.error("--all-namespaces and --namespace exclude each other")
    namespaces = [] if options.all_namespaces else options.namespace or ["default"]
    drivers = options.drivers or namespaces or ["default"]
    path = work_folder() / "manifests" / FILE
    try:
        helm.vendor()
        text = render(values_of(namespaces, drivers, options.registry, options.secret))
    except helm.HelmError as error:
        print(error, file=sys.stderr)
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"Install the operator with: kubectl apply -f {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
