"""The programs of the cluster's node, built from pinned Go modules.

They are what kind's stock node image holds, in the same versions, except cri-tools and kindnetd, which
are not published as modules: `sources/crictl.go` replaces the first, CNI's own `ptp` plugin the second.
"""

from functools import partial
from pathlib import Path
from typing import Final

from infra import versions
from infra.toolchain.go_build import Program
from infra.toolchain.go_programs import API_SERVER, ETCD, KUBECTL, NO_CLUSTER, kubernetes_program

_SOURCES: Final = Path(__file__).parent / "sources"
_program: Final = partial(Program, opt_out_variable=NO_CLUSTER, built_by="make kind-up")


def _containerd(name: str) -> Program:
    return _program(
        name=name,
        module="github.com/containerd/containerd/v2",
        version=versions.CONTAINERD,
        checksum=versions.CONTAINERD_SUM,
        package=f"./cmd/{name}",
        linker_flags="-s -w -X github.com/containerd/containerd/v2/version.Version"
        f"=v{versions.CONTAINERD}",
        tags="no_aufs,no_zfs,no_btrfs,no_devmapper",  # the same as in kind's image
    )


def _from_plugins_module(name: str, package: str, added: dict[str, Path] | None = None) -> Program:
    return _program(
        name=name,
        module="github.com/containernetworking/plugins",
        version=versions.CNI_PLUGINS,
        checksum=versions.CNI_PLUGINS_SUM,
        package=package,
        build_time_hint="seconds",
        added=added or {},
    )


CONTAINERD: Final = _containerd("containerd")
CTR: Final = _containerd("ctr")
SHIM: Final = _containerd("containerd-shim-runc-v2")

PLUGINS: Final = {
    name: _from_plugins_module(f"cni-{name}", f"./plugins/{kind}/{name}")
    for name, kind in {
        "host-local": "ipam",
        "loopback": "main",
        "portmap": "meta",
        "ptp": "main",
    }.items()
}

PAUSE: Final = _from_plugins_module("pause", "./pause", {"pause/main.go": _SOURCES / "pause.go"})
"""It uses only Go's standard library; it is built in a small module that is fetched anyway."""

COREDNS: Final = _program(
    name="coredns",
    module="github.com/coredns/coredns",
    version=versions.COREDNS,
    checksum=versions.COREDNS_SUM,
    package="./sluicegate",
    added={"sluicegate/main.go": _SOURCES / "coredns.go"},
)
LOCAL_PATH: Final = _program(
    name="local-path-provisioner",
    module="github.com/rancher/local-path-provisioner",
    version=versions.LOCAL_PATH,
    checksum=versions.LOCAL_PATH_SUM,
    package=".",
    linker_flags=f"-s -w -X main.VERSION=v{versions.LOCAL_PATH}",
)

_CRICTL_SOURCE: Final = {"cmd/crictl/main.go": _SOURCES / "crictl.go"}
CRICTL: Final = kubernetes_program("crictl", "seconds", added=_CRICTL_SOURCE)
KUBEADM: Final = kubernetes_program("kubeadm")
KUBELET: Final = kubernetes_program("kubelet")
CONTROLLER_MANAGER: Final = kubernetes_program("kube-controller-manager")
SCHEDULER: Final = kubernetes_program("kube-scheduler")
PROXY: Final = kubernetes_program("kube-proxy", "a minute")

# big programs of one module in a row: the second finds most of its packages in Go's cache
PROGRAMS: Final = (
    API_SERVER,
    CONTROLLER_MANAGER,
    SCHEDULER,
    KUBELET,
    KUBEADM,
    PROXY,
    KUBECTL,
    CRICTL,
    ETCD,
    CONTAINERD,
    CTR,
    SHIM,
    COREDNS,
    LOCAL_PATH,
    *PLUGINS.values(),
    PAUSE,
)
