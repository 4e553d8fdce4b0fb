"""The Go programs of tests, tools and images: `python -m infra.toolchain.go_programs NAME`.

helm, kind and kubectl are linked in `.work/bin`; one on the PATH of the same minor version is used
instead of a build.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from infra import versions
from infra.toolchain.go_build import BuildError, Program
from infra.workspace import CHECKOUT, work_folder

NO_KUBERNETES: Final = "SLUICEGATE_NO_KUBERNETES"
"""Set it to build no API server, on a machine where that takes too long."""

NO_S3: Final = "SLUICEGATE_NO_S3"
"""Set it to build no S3 server."""

NO_CLUSTER: Final = "SLUICEGATE_NO_CLUSTER"
"""Set it to build neither helm, kind, promtool, prometheus nor the programs of a cluster's node."""

_SUMS: Final = Path(__file__).parent
_COLLECTOR_SOURCE: Final = CHECKOUT / "infra" / "images" / "collector"


def _without_replace(go_mod: str) -> str:
    """Return etcd's go.mod without folders of its own repository: the versions are required anyway."""
    return re.sub(r"(?ms)^replace \(.*?^\)\n", "", go_mod)


def _with_published_parts(go_mod: str) -> str:
    """Return Kubernetes' go.mod with its `staging/` parts as the modules that they are published as.

    Kubernetes is released as one module; its parts are modules too, left out of the source that a Go
    proxy serves. The part of 1.x.y is published as 0.x.y. kubernetes.sum pins the parts.
    """
    version = f"v0.{versions.KUBERNETES.partition('.')[2]}"
    required = re.sub(r"(?m)^(\s+k8s\.io/[a-z0-9-]+) v0\.0\.0$", rf"\1 {version}", go_mod)
    return re.sub(r"=> \./staging/src/(k8s\.io/[a-z0-9-]+)", rf"=> \1 {version}", required)


def _kubernetes_linker_flags() -> str:
    """Return the linker flags from which a Kubernetes program knows its version."""
    major, minor, _ = versions.KUBERNETES.split(".")
    values = {
        "gitVersion": f"v{versions.KUBERNETES}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
        "buildDate": "1970-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    flags = [f"-X {package}.{name}={text}" for package in packages for name, text in values.items()]
    return " ".join(["-s", "-w", *flags])


def kubernetes_program(
    name: str, build_time_hint: str = "some minutes", *, added: Mapping[str, Path] | None = None
) -> Program:
    """Return a program of Kubernetes' own module, in `cmd/NAME`."""
    return Program(
        name=name,
        module="k8s.io/kubernetes",
        version=versions.KUBERNETES,
        checksum=versions.KUBERNETES_SUM,
        package=f"./cmd/{name}",
        opt_out_variable=NO_KUBERNETES,
        build_time_hint=build_time_hint,
        timeout_s=5400.0,
        linker_flags=_kubernetes_linker_flags(),
        patch_go_mod=_with_published_parts,
        sums=_SUMS / "kubernetes.sum",
        added=added or {},
    )


HELM: Final = Program(
    name="helm",
    module="helm.sh/helm/v4",
    version=versions.HELM,
    checksum=versions.HELM_SUM,
    package="./cmd/helm",
    linker_flags=f"-s -w -X helm.sh/helm/v4/internal/version.version=v{versions.HELM}",
    opt_out_variable=NO_CLUSTER,
    built_by="make tools",
)
KIND: Final = Program(
    name="kind",
    module="sigs.k8s.io/kind",
    version=versions.KIND,
    checksum=versions.KIND_SUM,
    package=".",
    opt_out_variable=NO_CLUSTER,
    built_by="make tools",
)
KUBECTL: Final = kubernetes_program("kubectl")
API_SERVER: Final = kubernetes_program("kube-apiserver", "4 to 15 minutes on two cores")
ETCD: Final = Program(
    name="etcd",
    module="go.etcd.io/etcd/server/v3",
    version=versions.ETCD,
    checksum=versions.ETCD_SUM,
    package=".",
    opt_out_variable=NO_KUBERNETES,
    patch_go_mod=_without_replace,
    sums=_SUMS / "etcd.sum",
)
VERSITYGW: Final = Program(
    name="versitygw",
    module="github.com/versity/versitygw",
    version=versions.VERSITYGW,
    checksum=versions.VERSITYGW_SUM,
    package="./cmd/versitygw",
    opt_out_variable=NO_S3,
    patches=(_SUMS / "patches" / "versitygw-fsync.patch",),
)
# The OpenTelemetry Collector: our `main` with the components that go.mod names.
COLLECTOR: Final = Program(
    name="otelcol",
    module="",
    version=versions.OTELCOL,
    checksum=versions.OTELCOL_SUM,
    package=".",
    opt_out_variable="",
    linker_flags=f"-s -w -X main.version={versions.OTELCOL}",
    added={name: _COLLECTOR_SOURCE / name for name in ("go.mod", "main.go")},
    system="linux",
    built_by="make images",
)

MYSQLD_EXPORTER: Final = Program(
    name="mysqld_exporter",
    module="github.com/prometheus/mysqld_exporter",
    version=versions.MYSQLD_EXPORTER,
    checksum=versions.MYSQLD_EXPORTER_SUM,
    package=".",
    opt_out_variable="",
    linker_flags="-s -w -X github.com/prometheus/common/version.Version="
    + versions.MYSQLD_EXPORTER,
    system="linux",
    built_by="make images",
)


def _prometheus_program(name: str) -> Program:
    """Return a program of Prometheus' own module, in `cmd/NAME`."""
    return Program(
        name=name,
        module="github.com/prometheus/prometheus",
        version=versions.PROMETHEUS,
        checksum=versions.PROMETHEUS_SUM,
        package=f"./cmd/{name}",
        opt_out_variable=NO_CLUSTER,
        # without the clients of thirty clouds, where a server would look for what it scrapes
        tags="remove_all_sd",
    )


PROMTOOL: Final = _prometheus_program("promtool")
PROMETHEUS: Final = _prometheus_program("prometheus")

CLI_TOOLS: Final[Mapping[str, Program]] = {tool.name: tool for tool in (HELM, KIND, KUBECTL)}
"""What people and tests call on a cluster."""

CONTROL_PLANE: Final = (ETCD, API_SERVER)
"""What a Kubernetes API server of the tests consists of, the quick one first."""

PROGRAMS: Final[Mapping[str, Program]] = {
    program.name: program
    for program in (
        *CLI_TOOLS.values(),
        *CONTROL_PLANE,
        VERSITYGW,
        COLLECTOR,
        MYSQLD_EXPORTER,
        PROMTOOL,
        PROMETHEUS,
    )
}

_VERSION_ARGUMENTS: Final = {
    "helm": ["version", "--short"],
    "kind": ["version"],
    "kubectl": ["version", "--client"],
}
"""Each prints its version as the first `v1.2.3`."""


def api_server_missing_reason() -> str:
    """Return why there is no API server on this machine, or an empty string."""
    reasons = (program.missing_reason() for program in CONTROL_PLANE)
    return next((reason for reason in reasons if reason), "")


def bin_folder() -> Path:
    """Return the folder with the links to the tools, which belongs first on a PATH."""
    return work_folder() / "bin"


def tool_missing_reason(name: str) -> str:
    """Return why a tool is missing, or an empty string. Builds nothing."""
    return "" if find_tool(name) else CLI_TOOLS[name].missing_reason()


def find_tool(name: str) -> Path | None:
    """Return a tool that exists: the built one, else the user's own of the same minor version."""
    built = CLI_TOOLS[name].binary  # first: the user's own only saves the time of a build
    return built if built.is_file() else _find_on_path(name)


def link_tool(name: str) -> Path:
    """Return the link in `.work/bin` to helm, kind or kubectl, which is built if it does not exist."""
    link = bin_folder() / name
    target = find_tool(name) or CLI_TOOLS[name].build()
    if link.is_symlink() and link.readlink() == target:
        return link
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f".{name}.link")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)
    return link


def _find_on_path(name: str) -> Path | None:
    """Return the user's own tool if its minor version is ours."""
    path = [entry for entry in os.get_exec_path() if Path(entry) != bin_folder()]
    own = shutil.which(name, path=os.pathsep.join(path))
    if not own:
        return None
    command = [own, *_VERSION_ARGUMENTS[name]]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    version = re.search(r"v(\d+\.\d+)\.", printed)
    wanted = CLI_TOOLS[name].version.rpartition(".")[0]
    return Path(own).absolute() if version and version.group(1) == wanted else None


def main(arguments: list[str] | None = None) -> int:
    """Build programs and print where they are. Return 1 if one cannot be built and is not optional."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.toolchain.go_programs", description=__doc__
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: helm, kind and kubectl")
    parser.add_argument(
        "--optional", action="store_true", help="exit 0 also where a program cannot be built"
    )
    options = parser.parse_args(arguments)
    names = options.names or list(CLI_TOOLS)
    if unknown := sorted(set(names) - set(PROGRAMS)):
        parser.error(f"unknown program {unknown[0]}; known: {', '.join(PROGRAMS)}")
    failed = False
    for name in names:
        try:
            print(link_tool(name) if name in CLI_TOOLS else PROGRAMS[name].build())
        except BuildError as error:
            print(f"{error}\nGoing on without {name}.", file=sys.stderr)
            failed = True
    return int(failed and not options.optional)


if __name__ == "__main__":
    sys.exit(main())
