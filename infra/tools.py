"""kubectl, helm and kind: what people and tests call on a cluster, built from Go modules (`gobuild`).

One that is on the PATH in the same minor version is taken as it is. All of them are linked in
`.work/bin`. Not here: what runs inside a cluster (infra.kind). Called by the Makefile, infra.kind
and the tests of charts.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from infra import versions
from infra.gobuild import BuildError, Program
from infra.kubernetes import KUBECTL
from infra.work import work_folder

OFF_VARIABLE: Final = "SLUICEGATE_NO_CLUSTER"
"""Set it to build neither helm, kind nor what a node runs; what needs them is left out then."""

_tool: Final = partial(Program, without=OFF_VARIABLE, made_by="make tools")

HELM: Final = _tool(
    name="helm",
    module="helm.sh/helm/v4",
    version=versions.HELM,
    checksum=versions.HELM_SUM,
    package="./cmd/helm",
    linked=f"-s -w -X helm.sh/helm/v4/internal/version.version=v{versions.HELM}",
)
KIND: Final = _tool(
    name="kind",
    module="sigs.k8s.io/kind",
    version=versions.KIND,
    checksum=versions.KIND_SUM,
    package=".",
)

TOOLS: Final[Mapping[str, Program]] = {tool.name: tool for tool in (HELM, KIND, KUBECTL)}

_ASKED: Final = {
    "helm": ["version", "--short"],
    "kind": ["version"],
    "kubectl": ["version", "--client"],
}
"""How each says its version; the first `v1.2.3` in what it prints."""


def folder() -> Path:
    """Return the folder with the links: to be put first on a PATH."""
    return work_folder() / "bin"


def gap(name: str) -> str:
    """Return why a tool is not here, or an empty string; it does not build."""
    return "" if found(name) else TOOLS[name].gap()


def found(name: str) -> Path | None:
    """Return a tool that is here: ours, else the user's own of our minor version; it does not build."""
    # ours first: an own one of the same version was only looked for to save the time of a build
    ours = TOOLS[name].binary
    return ours if ours.is_file() else _own(name)


def tool(name: str) -> Path:
    """Return the link to a tool: to the one that is `found`, else to ours, built now.

    Args:
        name: `helm`, `kind` or `kubectl`.

    Raises:
        BuildError: there is none, and none can be built; see `gobuild.Program.build`.
    """
    link = folder() / name
    there = found(name) or TOOLS[name].build()
    if link.is_symlink() and link.readlink() == there:
        return link
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f".{name}.link")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(there)
    fresh.replace(link)
    return link


def _own(name: str) -> Path | None:
    """Return the user's tool, if it is of our minor version."""
    path = [entry for entry in os.get_exec_path() if Path(entry) != folder()]
    own = shutil.which(name, path=os.pathsep.join(path))
    if not own:
        return None
    said = subprocess.run([own, *_ASKED[name]], capture_output=True, text=True, check=False)
    version = re.search(r"v(\d+\.\d+)\.", said.stdout)
    wanted = TOOLS[name].version.rpartition(".")[0]
    return Path(own).absolute() if version and version.group(1) == wanted else None


def main(arguments: list[str] | None = None) -> int:
    """Build and link; print where each tool is. Return 1 if one cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m infra.tools", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="helm, kind, kubectl; default all")
    names = parser.parse_args(arguments).names or list(TOOLS)
    if unknown := sorted(set(names) - set(TOOLS)):
        parser.error(f"no such tool: {', '.join(unknown)}; there are {', '.join(TOOLS)}")
    missing = 0
    for name in names:
        try:
            print(tool(name))
        except BuildError as error:
            print(f"{error}\nGoing on without {name}.", file=sys.stderr)
            missing += 1
    return min(missing, 1)


if __name__ == "__main__":
    sys.exit(main())
