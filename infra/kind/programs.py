"""The programs of a node of the cluster, built from pinned Go modules (`gobuild`).

What the stock node image of kind holds, in the same versions, but for cri-tools and kindnetd, which
are no published modules: `sources/crictl.go` stands in for the one, CNI's own `ptp` for the other.
Not here: what becomes of them (`rootfs`, `systemimages`). Called by `node`.
"""

from functools import partial
from pathlib import Path
from typing import Final

from infra import versions
from infra.gobuild import Program
from infra.kubernetes import API_SERVER, ETCD_SERVER, KUBECTL, part
from infra.tools import OFF_VARIABLE

_SOURCES: Final = Path(__file__).parent / "sources"
_program: Final = partial(Program, without=OFF_VARIABLE, made_by="make kind-up")


def _containerd(name: str) -> Program:
    return _program(
        name=name,
        module="github.com/containerd/containerd/v2",
        version=versions.CONTAINERD,
        checksum=versions.CONTAINERD_SUM,
        package=f"./cmd/{name}",
        linked="-s -w -X github.com/containerd/containerd/v2/version.Version"
        f"=v{versions.CONTAINERD}",
        tags="no_aufs,no_zfs,no_btrfs,no_devmapper",  # as kind's own
    )


def _plugin(name: str, kind: str) -> Program:
    return _of_plugins(f"cni-{name}", f"./plugins/{kind}/{name}")


def _of_plugins(name: str, package: str, added: dict[str, Path] | None = None) -> Program:
    return _program(
        name=name,
        module="github.com/containernetworking/plugins",
        version=versions.CNI_PLUGINS,
        checksum=versions.CNI_PLUGINS_SUM,
        package=package,
        takes="seconds",
        added=added or {},
    )


CONTAINERD: Final = _containerd("containerd")
CTR: Final = _containerd("ctr")
SHIM: Final = _containerd("containerd-shim-runc-v2")

PLUGINS: Final = {
    "host-local": _plugin("host-local", "ipam"),
    "loopback": _plugin("loopback", "main"),
    "portmap": _plugin("portmap", "meta"),
    "ptp": _plugin("ptp", "main"),
}

PAUSE: Final = _of_plugins("pause", "./pause", {"pause/main.go": _SOURCES / "pause.go"})
"""It calls Go's own library only; it is built where a small module lies anyway."""

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
    linked=f"-s -w -X main.VERSION=v{versions.LOCAL_PATH}",
)

CRICTL: Final = part("crictl", "seconds", added={"cmd/crictl/main.go": _SOURCES / "crictl.go"})
KUBEADM: Final = part("kubeadm", "some minutes")
KUBELET: Final = part("kubelet", "some minutes")
CONTROLLER_MANAGER: Final = part("kube-controller-manager", "some minutes")
SCHEDULER: Final = part("kube-scheduler", "some minutes")
PROXY: Final = part("kube-proxy", "a minute")

# the big ones of one module after each other: the second finds most of itself in Go's cache
PROGRAMS: Final = (
    API_SERVER,
    CONTROLLER_MANAGER,
    SCHEDULER,
    KUBELET,
    KUBEADM,
    PROXY,
    KUBECTL,
    CRICTL,
    ETCD_SERVER,
    CONTAINERD,
    CTR,
    SHIM,
    COREDNS,
    LOCAL_PATH,
    *PLUGINS.values(),
    PAUSE,
)
