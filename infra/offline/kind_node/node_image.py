"""A node image for machines that cannot pull kind's stock image. Needs root on Debian.

Its tag is a hash of all inputs, so it is rebuilt only when an input changes.
"""

import hashlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from infra.offline.kind_node import image_archive, programs, rootfs, system_images
from infra.toolchain.go_build import Program
from infra.toolchain.host import HostError, Steps, answers, may_install, need, run, tail
from infra.versions import KIND, KUBERNETES
from infra.workspace import cache_folder, locked

_REPOSITORY: Final = "sluicegate/node"
_SETTINGS: Final = {
    "Env": [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "container=docker",
    ],
    "StopSignal": "SIGRTMIN+3",
    "Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"],
}
"""As in kind's Dockerfile."""

_HERE: Final = Path(__file__).parent
# the inputs of an image in addition to the programs
_RECIPE: Final = (
    *("image_archive.py", "node_image.py", "rootfs.py", "system_images.py"),
    "manifests/*.yaml",
)
_STEPS: Final = 4
_CONTAINERD_TIMEOUT_S: Final = 30.0
_DISABLED: Final = (
    "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.images",
    "io.containerd.cri.v1.runtime",
    "io.containerd.nri.v1.nri",
    "io.containerd.internal.v1.opt",
)


def name() -> str:
    """Return the image's name, for what this checkout would build."""
    content = hashlib.sha256(KIND.encode())
    for program in programs.PROGRAMS:
        content.update(program.binary.name.encode() + b"\0")
    for pattern in _RECIPE:
        for file in sorted(_HERE.glob(pattern)):
            content.update(file.name.encode() + b"\0" + file.read_bytes())
    return f"{_REPOSITORY}:{KUBERNETES}-{content.hexdigest()[:12]}"


def built() -> bool:
    """Return whether the engine has it."""
    return answers(["docker", "image", "inspect", name()]) is not None


def missing() -> list[Program]:
    """Return the programs that are still to be built for it."""
    return [program for program in programs.PROGRAMS if not program.binary.is_file()]


def build(steps: Steps) -> str:
    """Build the image unless the engine has it; return its name. `steps` grows by what there is to do."""
    if built():
        return name()
    if not may_install():
        raise HostError(
            "The node image of our own can be built by root on Debian only. Nothing was built; with "
            "SLUICEGATE_NODE=stock kind's stock image is pulled."
        )
    need({"mmdebstrap": "mmdebstrap"})
    lacking = missing()
    steps.grow(len(lacking) + _STEPS)
    for program in lacking:
        steps.begin(f"{program.name} {program.version}")
        program.build()
    steps.begin("Debian's part of the node (a minute or two the first time)")
    rootfs.base()
    kept = cache_folder() / "kind"
    with locked(kept / ".lock"):  # one node at a time is assembled on this machine
        if not built():  # by another clone, which we have waited for
            with tempfile.TemporaryDirectory(prefix="node-", dir=kept) as folder:
                _assemble(Path(folder), steps)
        _forget_older(kept)
    return name()


def _assemble(work: Path, steps: Steps) -> None:
    root = work / "root"
    root.mkdir()
    root.chmod(0o755)
    steps.begin("the node's root file system")
    rootfs.lay(root)
    _fill_in_names(root)
    steps.begin("the cluster's own images")
    with _containerd(root) as socket:
        for image in system_images.all_images(root):
            made = system_images.write(image, root, work)
            put: list[str | Path] = [programs.CTR.binary, "--address", socket]
            put += ["--namespace", "k8s.io", "images", "import", "--all-platforms", "--no-unpack"]
            # pinned: kubelet's cleaning must leave what could not be pulled again
            put += ["--digests", "--label=io.cri-containerd.pinned=pinned", made]
            run(put, what=f"{image.name} could not be put into the node")
            made.unlink()
    steps.begin("the node image")
    packed = work / "node.tar"
    image_archive.write(packed, name(), root, _SETTINGS, owners=True)
    run(
        ["docker", "load", "--input", packed],
        what="the engine does not take the node image",
        patience_s=600.0,
    )


def _fill_in_names(root: Path) -> None:
    """Put the images' names into the manifest of the default storage."""
    manifest = root / "kind/manifests/default-storage.yaml"
    text = manifest.read_text(encoding="utf-8")
    text = text.replace("@PROVISIONER@", system_images.PROVISIONER)
    manifest.write_text(text.replace("@HELPER@", system_images.HELPER), encoding="utf-8")


@contextmanager
def _containerd(root: Path) -> Iterator[Path]:
    """Run the node's containerd on the node's own folder; yield its socket.

    Images are only stored: their files are unpacked on the node, when it first uses them.
    """
    with tempfile.TemporaryDirectory(prefix="containerd-") as folder:
        state = Path(folder)
        settings = state / "config.toml"
        settings.write_text(_containerd_settings(root, state), encoding="utf-8")
        log = state / "log"
        with log.open("wb") as to:
            process = subprocess.Popen(
                [programs.CONTAINERD.binary, "--config", settings],
                stdin=subprocess.DEVNULL,
                stdout=to,
                stderr=subprocess.STDOUT,
            )
        try:
            socket = state / "socket"
            deadline = time.monotonic() + _CONTAINERD_TIMEOUT_S
            while answers([programs.CTR.binary, "--address", socket, "version"]) is None:
                if process.poll() is not None or time.monotonic() > deadline:
                    last = tail(log.read_text(encoding="utf-8", errors="replace"))
                    raise HostError(f"containerd did not start:\n{last}")
                time.sleep(0.1)
            yield socket
        finally:
            process.terminate()
            process.wait()


def _containerd_settings(root: Path, state: Path) -> str:
    disabled = ", ".join(f'"{plugin}"' for plugin in _DISABLED)
    return f"""version = 3
root = "{root}/var/lib/containerd"
state = "{state}/state"
disabled_plugins = [{disabled}]
[grpc]
  address = "{state}/socket"
[ttrpc]
  address = "{state}/socket.ttrpc"
"""


def _forget_older(kept: Path) -> None:
    """Remove node images of other content, but for one that a cluster uses, and killed builds."""
    listed = answers(["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", _REPOSITORY])
    for old in (listed or "").split():
        if old != name():
            answers(["docker", "image", "rm", old])
    for left in kept.glob("node-*"):
        shutil.rmtree(left)
