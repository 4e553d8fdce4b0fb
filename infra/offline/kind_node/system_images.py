"""The images that kubeadm and kind expect on a node, built from the programs and the node's own files.

They have the names that kubeadm and containerd's settings use, so nothing is pulled. A tag is not always the
program's version: etcd's is the one that kubeadm requires.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.offline.kind_node import image_archive, programs
from infra.offline.kind_node.rootfs import copy, libraries
from infra.toolchain.go_build import Program
from infra.toolchain.go_programs import CONTROL_PLANE
from infra.toolchain.host import HostError, run
from infra.versions import KUBERNETES, LOCAL_PATH

PROVISIONER: Final = f"docker.io/sluicegate/local-path-provisioner:{LOCAL_PATH}"
HELPER: Final = f"docker.io/sluicegate/local-path-helper:{LOCAL_PATH}"

_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_USERS: Final = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
_CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"
_PROXY_CALLS: Final = (
    *("/usr/sbin/xtables-nft-multi", "/usr/sbin/nft", "/usr/sbin/conntrack", "/usr/bin/kmod"),
    "/usr/bin/busybox",
)
_TABLES: Final = ("iptables", "ip6tables")
_SHELL: Final = ("sh", "ls", "cat", "mkdir", "rm", "chmod", "sleep")


@dataclass(frozen=True)
class SystemImage:
    """An image of the cluster itself."""

    name: str  # `repository:tag`, as the node asks for it
    # puts the files below an empty folder, from the node's root file system
    fill: Callable[[Path, Path], None]
    settings: dict[str, object]  # the image's `config`


def all_images(root: Path) -> list[SystemImage]:
    """Return the images for a node whose root file system has the programs."""
    ask = ["config", "images", "list", f"--kubernetes-version=v{KUBERNETES}"]
    what = "kubeadm does not say which images it wants"
    asked = run([programs.KUBEADM.binary, *ask], what=what).split()
    made = [
        *(_wanted(name) for name in asked if "/pause:" not in name),
        _of(pause_name(root / "etc/containerd/config.toml"), programs.PAUSE, user="65535:65535"),
        _of(PROVISIONER, programs.LOCAL_PATH),
        SystemImage(HELPER, _fill_helper, {"Env": [_PATH], "Cmd": ["/bin/sh"]}),
    ]
    return sorted(made, key=lambda image: image.name)


def pause_name(settings: Path) -> str:
    """Return the image that holds a pod's namespaces, as containerd's settings name it."""
    for line in settings.read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "sandbox_image":
            return value.strip().strip('"')
    raise HostError(f"{settings} names no sandbox_image")


def _wanted(name: str) -> SystemImage:
    """Return an image that kubeadm wants."""
    short = name.rpartition("/")[2].partition(":")[0]
    if short == programs.PROXY.name:
        return SystemImage(name, _fill_proxy, _settings(f"/usr/local/bin/{short}"))
    for program in (
        *CONTROL_PLANE,
        programs.CONTROLLER_MANAGER,
        programs.SCHEDULER,
        programs.COREDNS,
    ):
        if program.name == short:
            return _of(name, program)
    raise HostError(
        f"kubeadm wants an image that infra.offline.kind_node.system_images lacks: {name}"
    )


def _of(name: str, program: Program, user: str = "") -> SystemImage:
    """Return an image of one program."""

    def fill(folder: Path, root: Path) -> None:
        _fill_common(folder, root)
        copy(program.binary, folder / "usr/local/bin" / program.name)

    return SystemImage(name, fill, _settings(f"/usr/local/bin/{program.name}", user))


def _settings(program: str, user: str = "") -> dict[str, object]:
    settings: dict[str, object] = {"Env": [_PATH], "Entrypoint": [program]}
    return {**settings, "User": user} if user else settings


def _fill_common(folder: Path, root: Path) -> None:
    copy(root / _CERTIFICATES, folder / _CERTIFICATES, 0o644)
    (folder / "etc/passwd").write_text(_USERS, encoding="utf-8")
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)


def _fill_helper(folder: Path, root: Path) -> None:
    _fill_common(folder, root)
    copy(root / "usr/bin/busybox", folder / "bin/busybox")
    for name in _SHELL:
        (folder / "bin" / name).symlink_to("busybox")


def _fill_proxy(folder: Path, root: Path) -> None:
    """Fill kube-proxy's image: it calls iptables, nft and conntrack, which load libraries."""
    _fill_common(folder, root)
    copy(programs.PROXY.binary, folder / "usr/local/bin/kube-proxy")
    for name in ("bin", "sbin", "lib", "lib64"):
        (folder / "usr" / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(f"usr/{name}")
    (extensions,) = (root / "usr/lib").glob("*/xtables")
    needed: set[str] = set()
    for call in _PROXY_CALLS:
        needed |= {call, *libraries(root, call)}
    for extension in extensions.glob("*.so"):
        # they load more than iptables itself: without libm, say, kube-proxy's rules are refused
        inside = f"/{extension.relative_to(root)}"
        needed |= {inside, *libraries(root, inside)}
    for file in sorted(needed):
        copy(_inside(root, file), folder / file.lstrip("/"))
    for name in _TABLES:
        for task in ("", "-save", "-restore"):
            (folder / f"usr/sbin/{name}{task}").symlink_to("xtables-nft-multi")
    for name in _SHELL:
        (folder / f"usr/bin/{name}").symlink_to("busybox")
    (folder / "usr/sbin/modprobe").symlink_to("../bin/kmod")
    _check_proxy(folder)


def _check_proxy(folder: Path) -> None:
    """Run what kube-proxy will run: a missing library shows itself here and not as a dead Service."""
    for call in (
        ["iptables", "-m", "statistic", "--help"],
        ["iptables", "-m", "comment", "--help"],
        ["ip6tables-restore", "--version"],
        ["nft", "--version"],
        ["conntrack", "--version"],
    ):
        what = f"kube-proxy's image is not whole: {' '.join(call)} fails in it"
        run(["chroot", folder, f"/usr/sbin/{call[0]}", *call[1:]], what=what)


def _inside(root: Path, file: str) -> Path:
    """Return where a path of a root file system leads, its links followed within that root."""
    inside = run(["chroot", root, "readlink", "-f", file], what=f"{file} is missing").strip()
    return Path(f"{root}{inside}")


def write(image: SystemImage, root: Path, work: Path) -> Path:
    """Write the archive of an image into `work`; return it."""
    folder = work / "image"
    folder.mkdir()
    try:
        image.fill(folder, root)
        target = work / f"{image.name.replace('/', '_').replace(':', '_')}.tar"
        image_archive.write(target, image.name, folder, image.settings)
    finally:
        shutil.rmtree(folder)
    return target
