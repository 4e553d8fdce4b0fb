"""Runs helm: puts beside a chart what it includes, and lints. No chart is fetched from anywhere.

Not here: where helm is, and building it (infra.tools). Called by `infra.charts` and the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from infra import tools
from infra.work import CHECKOUT, work_folder

FOLDER: Final = CHECKOUT / "charts"
CHARTS: Final = ("object-store", "mysql", "kafka", "collector", "operator", "job", "sluicegate")
"""Each after those that it includes; `common` is no chart to install."""


class HelmError(Exception):
    """helm refused; the message is its own."""


def run(arguments: Sequence[str], *, kubeconfig: Path | None = None) -> str:
    """Run helm and return what it printed. It keeps its files in the work folder, and none in the home.

    Args:
        arguments: of helm.
        kubeconfig: of the cluster to ask; None: it may ask none.

    Raises:
        HelmError: it failed.
    """
    helm = tools.found("helm")
    if helm is None:
        raise HelmError(tools.gap("helm"))
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
    """Put into each chart what it includes, as it is now: charts, and the operator's resource definitions.

    `helm dependency build` would keep an older copy.

    Raises:
        HelmError: see `run`.
    """
    definitions = folder / "operator" / "files" / "crds"
    shutil.rmtree(definitions, ignore_errors=True)
    definitions.mkdir()
    for path in (CHECKOUT / "operators" / "crds").glob("*.yaml"):
        shutil.copy(path, definitions)
    for name in CHARTS:
        run(["dependency", "update", "--skip-refresh", str(folder / name)])


def lint(folder: Path = FOLDER) -> None:
    """Lint each chart, with its own values and with each file of them beside it.

    Raises:
        HelmError: a chart is not right.
    """
    for name in CHARTS:
        files = [*(folder / name).glob("values-*.yaml"), *(folder / name).glob("ci/*.yaml")]
        for values in [[], *(["--values", str(path)] for path in sorted(files))]:
            run(["lint", "--strict", "--quiet", str(folder / name), *values])
