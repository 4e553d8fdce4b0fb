"""Runs helm: vendors subcharts and lints. No chart is downloaded."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from infra.toolchain import go_programs
from infra.workspace import CHECKOUT, work_folder

FOLDER: Final = CHECKOUT / "charts"
CHARTS: Final = (
    "object-store",
    "mysql",
    "kafka",
    "collector",
    "console",
    "operator",
    "job",
    "sluicegate",
)
"""Each follows the charts that it includes; `common` is a library chart."""


class HelmError(Exception):
    """helm failed; the message is helm's."""


def run(arguments: Sequence[str], *, kubeconfig: Path | None = None) -> str:
    """Run helm and return its output; without a kubeconfig no cluster is reached.

    Its own files go to the work folder, not to the home folder.
    """
    helm = go_programs.find_tool("helm")
    if helm is None:
        raise HelmError(go_programs.tool_missing_reason("helm"))
    own = work_folder() / "helm"
    homes = {f"HELM_{name}_HOME": str(own / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    cluster = {"KUBECONFIG": str(kubeconfig or os.devnull)}
    done = subprocess.run(
        [str(helm), *arguments],
        env=os.environ | homes | cluster,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise HelmError(f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def vendor(folder: Path = FOLDER) -> None:
    """Copy the present subcharts into each chart.

    `helm dependency build` would keep older copies.
    """
    for name in CHARTS:
        run(["dependency", "update", "--skip-refresh", str(folder / name)])


def lint(folder: Path = FOLDER) -> None:
    """Lint each chart, with its default values and with each of its other values files."""
    for name in CHARTS:
        files = [*(folder / name).glob("values-*.yaml"), *(folder / name).glob("ci/*.yaml")]
        for values in [[], *(["--values", str(path)] for path in sorted(files))]:
            run(["lint", "--strict", "--quiet", str(folder / name), *values])
