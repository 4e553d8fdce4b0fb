"""The node's root file system: Debian by mmdebstrap, with kind's files and the programs on top.

Does what kind's images/base/Dockerfile does, with the files of kind's pinned module and without an engine.
Needs root, because file owners matter.
"""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Final

from infra.offline.kind_node import programs
from infra.toolchain.go_programs import KIND, KUBECTL
from infra.toolchain.host import HostError, answers, run
from infra.versions import KUBERNETES
from infra.workspace import cache_folder

_SUITE: Final = "bookworm"
_PACKAGES: Final = (
    # as in kind's base image, less what no test needs (NFS, iSCSI, FUSE overlays)
    *("systemd", "dbus", "conntrack", "iptables", "nftables", "iproute2", "ethtool", "util-linux"),
    *("mount", "kmod", "libseccomp2", "pigz", "e2fsprogs", "bash", "ca-certificates", "curl"),
    *("jq", "procps"),
    # where kind builds its own: runc; for kubectl port-forward and the storage's helper pods
    *("runc", "socat", "busybox-static"),
)

_MANIFESTS: Final = Path(__file__).parent / "manifests"
_UNIT_LINKS: Final = "etc/systemd/system/multi-user.target.wants"
# systemd's defaults that make no sense in a container, as in kind's Dockerfile
_UNWANTED: Final = (
    "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
    "lib/systemd/system/multi-user.target.wants/*",
    "etc/systemd/system/*.wants/*",
    "lib/systemd/system/local-fs.target.wants/*",
    "lib/systemd/system/sockets.target.wants/*udev*",
    "lib/systemd/system/sockets.target.wants/*initctl*",
    "lib/systemd/system/basic.target.wants/*",
)
_DEAD_WEIGHT: Final = (
    *("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/man", "usr/share/doc"),
    *("usr/share/locale", "tmp", "dev"),
)


def base() -> Path:
    """Return Debian's part as a tar file, made unless it is there.

    It is kept by its list of packages; for Debian's newest of them remove the file.
    """
    key = hashlib.sha256(" ".join([_SUITE, *sorted(_PACKAGES)]).encode()).hexdigest()[:12]
    kept = cache_folder() / "kind" / f"debian-{_SUITE}-{key}.tar"
    if kept.is_file():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh = kept.with_name(f".{kept.name}")
    options = ["--quiet", "--variant=minbase", f"--include={','.join(_PACKAGES)}"]
    run(
        ["mmdebstrap", *options, _SUITE, fresh],
        what="Debian's part of the node could not be made",
        patience_s=1200.0,
    )
    return fresh.rename(kept)


def lay(root: Path) -> None:
    """Lay the whole root file system below an empty folder."""
    run(["tar", "-C", root, "-xf", base()], what="Debian's part could not be unpacked")
    _lay_kind(root, KIND.module_folder() / "images" / "base" / "files")
    _lay_programs(root)
    _lay_settings(root)
    _tidy(root)


def _lay_kind(root: Path, files: Path) -> None:
    for path in sorted(files.rglob("*")):
        part = path.relative_to(files)
        if path.is_file() and part.parts[0] != "LICENSES":
            runs = part.parent.name == "bin"
            copy(path, root / part, 0o755 if runs else 0o644)
    (root / "etc/kubernetes/manifests").mkdir(parents=True, exist_ok=True)
    for pattern in _UNWANTED:
        for path in root.glob(pattern):
            path.unlink()
    with (root / "etc/systemd/journald.conf").open("a", encoding="utf-8") as journal:
        journal.write("ReadKMsg=no\n")
    _link(root / "sbin/init", "/usr/lib/systemd/systemd")
    for unit in ("kubelet", "containerd", "undo-mount-hacks"):
        _link(root / _UNIT_LINKS / f"{unit}.service", f"/etc/systemd/system/{unit}.service")
    _link(root / "etc/systemd/system/systemd-binfmt.service", "/dev/null")


def _lay_programs(root: Path) -> None:
    for program in (programs.CONTAINERD, programs.CTR, programs.SHIM, programs.CRICTL):
        copy(program.binary, root / "usr/local/bin" / program.name)
    for program in (programs.KUBEADM, programs.KUBELET, KUBECTL):
        copy(program.binary, root / "usr/bin" / program.name)
    for name, program in programs.PLUGINS.items():
        copy(program.binary, root / "opt/cni/bin" / name)


def _lay_settings(root: Path) -> None:
    _write(root / "kind/version", f"v{KUBERNETES}")
    spec = json.loads(run([programs.CTR.binary, "oci", "spec"], what="ctr does not run"))
    _write(root / "etc/containerd/cri-base.json", json.dumps(container_base(spec)))
    containerd = root / "etc/containerd/config.toml"
    text = containerd.read_text(encoding="utf-8")
    settled = text.replace("restrict_oom_score_adj = false", "restrict_oom_score_adj = true")
    if settled == text:
        raise HostError("kind's settings of containerd have changed: see rootfs._lay_settings")
    # where root may not lower it (no CAP_SYS_RESOURCE) no pod would start; elsewhere it costs the
    # kubelet's own ranking when memory runs out
    _write(containerd, settled)
    _write(root / "etc/cni/net.d/10-sluicegate.conflist", json.dumps(pod_network()))
    for manifest in sorted(_MANIFESTS.glob("*.yaml")):
        _write(root / "kind/manifests" / manifest.name, manifest.read_text(encoding="utf-8"))


def container_base(spec: dict[str, object]) -> dict[str, object]:
    """Return containerd's default specification of a container as kind wants it: one hook, no limits."""
    hooks = spec.get("hooks")
    process = spec.get("process")
    assert isinstance(process, dict)
    hooks = dict(hooks) if isinstance(hooks, dict) else {}
    files = {"path": "/kind/bin/mount-product-files.sh"}
    hooks["createContainer"] = [*hooks.get("createContainer", ()), files]
    unlimited = {name: value for name, value in process.items() if name != "rlimits"}
    return {**spec, "hooks": hooks, "process": unlimited}


def pod_network() -> dict[str, object]:
    """Return the pods' network as CNI's plugins read it (CNI specification 1.0).

    One node, so a route to each pod is all there is. The subnet is the node's share of kind's
    default, 10.244.0.0/16.
    """
    return {
        "cniVersion": "1.0.0",
        "name": "sluicegate",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": True,
                "mtu": 1500,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni-ipam-state",
                    "ranges": [[{"subnet": "10.244.0.0/24"}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _tidy(root: Path) -> None:
    for name in _DEAD_WEIGHT:
        for path in (root / name).iterdir() if (root / name).is_dir() else ():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in ("etc/hostname", "etc/resolv.conf"):
        (root / name).unlink(missing_ok=True)
    _write(root / "etc/machine-id", "")


def libraries(root: Path, file: str) -> set[str]:
    """Return the libraries that a program or library of a root file system loads, as paths in it.

    Runs the dynamic linker in that root (ld.so(8), `--list`). Statically linked programs need none.
    """
    (linker,) = [*root.glob("lib64/ld-linux-*"), *root.glob("lib/ld-linux-*")]
    argv: list[str | Path] = ["chroot", root, f"/{linker.relative_to(root)}", "--list", file]
    said = answers(argv) or ""
    if "not found" in said:
        raise HostError(f"The node lacks a library of {file}:\n{said}")
    # `libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x...)`, and the linker itself: `/lib64/... (0x...)`
    return set(re.findall(r"(?m)(/\S+) \(0x[0-9a-f]+\)$", said))


def copy(source: Path, target: Path, mode: int = 0o755) -> None:
    """Copy a file; the folders of its target are created."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def _link(place: Path, to: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(to)
