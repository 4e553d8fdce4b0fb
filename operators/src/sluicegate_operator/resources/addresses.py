"""Where things are on a CheckpointVolume, and how a process reaches it. Pure.

Called by `volumes`, by whoever makes a driver's environment, and by whoever runs tasks.
"""

from __future__ import annotations

import datetime as dt
import hashlib

from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.volume import CheckpointVolumeSpec

SAVEPOINTS = "savepoints"
"""The folder below a volume's prefix."""

AUTHORITY_VARIABLE = "SSL_CERT_FILE"
"""OpenSSL's: whom a process trusts instead of the system's authorities; the library has Java follow."""

AUTHORITY = "ca.crt"
"""The key of a volume's authoritySecret, and the name of a file with it."""

_UID_CHARACTERS = 8


def volume_address(spec: CheckpointVolumeSpec) -> str:
    """Return `s3://BUCKET/PREFIX`, or `s3://BUCKET`."""
    prefix = spec.prefix.strip("/")
    return f"s3://{spec.bucket}/{prefix}" if prefix else f"s3://{spec.bucket}"


def job_address(volume: CheckpointVolumeSpec, job: str, spec: StreamingJobSpec) -> str:
    """Return the address below which all checkpoints of a job are."""
    path = spec.checkpoint.path.strip("/") or job
    return f"{volume_address(volume)}/{path}"


def checkpoint_address(
    volume: CheckpointVolumeSpec, job: str, spec: StreamingJobSpec, number: int
) -> str:
    """Return the address of one checkpoint of a job; `number` is status.checkpointNumber."""
    return f"{job_address(volume, job, spec)}/{number}"


def savepoint_folder(
    volume: CheckpointVolumeSpec, job: str, name: str, uid: str, tick: float | None = None
) -> str:
    """Return the folder of one savepoint of a Savepoint resource.

    Args:
        volume: that it is copied to.
        job: the StreamingJob's name.
        name: of the Savepoint.
        uid: of its metadata: one that is deleted and made again begins anew.
        tick: the schedule's time; None for one that is taken once.
    """
    last = uid[:_UID_CHARACTERS]
    if tick is not None:
        last += f"-{dt.datetime.fromtimestamp(tick, dt.UTC):%Y%m%dT%H%MZ}"
    return f"{volume_address(volume)}/{SAVEPOINTS}/{job}/{name}/{last}"


def reached_by(spec: CheckpointVolumeSpec) -> tuple[str, ...]:
    """Return what decides how a volume is reached, apart from its bucket."""
    return (spec.endpoint, spec.region, spec.credentials_secret, spec.authority_secret)


def access_of(spec: CheckpointVolumeSpec) -> str:
    """Return a digest of how a volume is reached, without its keys."""
    *others, authority = reached_by(spec)
    # a volume without one has the digest that it had before there were any
    text = "\n".join([*others, authority] if authority else others)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def environment(
    spec: CheckpointVolumeSpec, access_key: str = "", secret_key: str = ""
) -> dict[str, str]:
    """Return the variables by which a process reaches a volume.

    Args:
        spec: of the volume.
        access_key: `accessKeyId` of its Secret; empty where the pod has an identity of its own.
        secret_key: `secretAccessKey` of its Secret.
    """
    made = {"AWS_REGION": spec.region}
    if spec.endpoint:
        made["AWS_ENDPOINT_URL"] = spec.endpoint
    if spec.endpoint.startswith("http://"):
        made["AWS_ALLOW_HTTP"] = "true"
    if access_key:
        made |= {"AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key}
    return made
