"""A disk of the cluster's node whose power can be cut: an ext4 image on a loop device.

A copy of the image has what the file system had written to its device: what the disk would have
after a power cut.
"""

from __future__ import annotations

from tests.e2e.cluster import Object
from tests.e2e.node import on_node

NAME = "disk"
"""Name of its PersistentVolume and of the claim."""

FOLDER = "/var/local/sluicegate-disk"
"""Folder of the node in which the disk is mounted."""

_IMAGE = "/var/local/sluicegate-disk.img"
_CUT = "/var/local/sluicegate-cut.img"
_MOUNT = f"mount -o loop,commit=600 {{}} {FOLDER}"
"""The journal is written on request only, not every 5 seconds by chance."""


def create() -> None:
    """Make and mount the image, in place of an earlier run's."""
    remove()
    on_node(
        f"truncate -s 1G {_IMAGE} && mkfs.ext4 -q -F {_IMAGE} && mkdir -p {FOLDER} && "
        f"{_MOUNT.format(_IMAGE)} && rmdir {FOLDER}/lost+found && "
        f"chmod 777 {FOLDER}"  # a subPath gets the mode of its volume
    )


def cut_power(program: str) -> None:
    """Stop a program that writes to the disk, and replace the disk by what a power cut leaves.

    The program's pod keeps the old disk until it is deleted.
    """
    on_node(f"pkill -STOP -x {program} && cp --sparse=always {_IMAGE} {_CUT}")
    on_node(f"umount -l {FOLDER} && {_MOUNT.format(_CUT)}")


def remove() -> None:
    """Unmount and delete the images, if there are any."""
    on_node(f"while umount -l {FOLDER} 2>/dev/null; do :; done; rm -f {_IMAGE} {_CUT}")


def volume(namespace: str) -> list[Object]:
    """Return a PersistentVolume on the disk, and its claim in a namespace."""
    shared: Object = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": NAME},
            "spec": {
                **shared,
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": FOLDER, "type": "Directory"},
                "claimRef": {"namespace": namespace, "name": NAME},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": NAME},
            "spec": {
                **shared,
                "volumeName": NAME,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    ]
