"""URLs of checkpoints and savepoints on a CheckpointVolume, and what determines access to its store."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
from urllib.parse import quote

from sluicegate_operator.api.checkpoint_volume import CheckpointVolumeSpec
from sluicegate_operator.api.streaming_job import StreamingJobSpec

CA_FILE_VARIABLE = "SSL_CERT_FILE"
"""OpenSSL's variable for a file of certificate authorities that replace those of the system. The library
configures Java accordingly."""

CA_KEY = "ca.crt"
"""Key in a volume's authoritySecret, and the name of the mounted file."""

_METADATA = tuple(
    map(ipaddress.ip_network, ("100.100.100.200/32", "fd00:ec2::/32", "fd20:ce::254/128"))
)
"""Metadata servers of Alibaba Cloud, Amazon (with its other services on the node) and Google Cloud that are
at no link-local address."""


def volume_address(spec: CheckpointVolumeSpec) -> str:
    """Return `s3://BUCKET/PREFIX`, or `s3://BUCKET`."""
    prefix = spec.prefix.strip("/")
    return f"s3://{spec.bucket}/{prefix}" if prefix else f"s3://{spec.bucket}"


def job_address(volume: CheckpointVolumeSpec, job: str, spec: StreamingJobSpec) -> str:
    """Return the URL below which all checkpoints of a job are stored."""
    path = spec.checkpoint.path.strip("/") or job
    return f"{volume_address(volume)}/{path}"


def checkpoint_address(
    volume: CheckpointVolumeSpec, job: str, spec: StreamingJobSpec, number: int
) -> str:
    """Return the URL of one checkpoint of a job; `number` is status.checkpoint.number."""
    return f"{job_address(volume, job, spec)}/{number}"


def console_page(console_url: str, checkpoint: str) -> str:
    """Return the address of the console's page about the job of a checkpoint.

    The console finds the page itself, because its own addresses decide what pages are called.
    """
    return f"{console_url.rstrip('/')}/find?checkpoint={quote(checkpoint, safe='')}"


def savepoint_folder(
    volume: CheckpointVolumeSpec, job: str, name: str, uid: str, tick: float | None = None
) -> str:
    """Return the URL of one savepoint of the Savepoint `name`, of the scheduled time `tick` if it has one.

    By its UID, a new Savepoint of the same name has folders of its own.
    """
    last = uid[:8]
    if tick is not None:
        last += f"-{dt.datetime.fromtimestamp(tick, dt.UTC):%Y%m%dT%H%MZ}"
    return f"{volume_address(volume)}/savepoints/{job}/{name}/{last}"


def access_parameters(spec: CheckpointVolumeSpec) -> tuple[str, ...]:
    """Return the fields that determine the access to a volume's store, without the bucket."""
    return (spec.endpoint, spec.region, spec.credentials_secret, spec.authority_secret)


def store_access_digest(spec: CheckpointVolumeSpec) -> str:
    """Return a digest of the access to a volume's store, without the credentials."""
    *others, authority = access_parameters(spec)
    # without an authority the digest is the one of releases that had no authoritySecret
    text = "\n".join([*others, authority] if authority else others)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_reserved_address(text: str) -> bool:
    """Return whether an address is one of this pod, of its node's link, or of a cloud's metadata server.

    No object store has such an address.

    Raises:
        ValueError: the text is not an address.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
        or any(address in network for network in _METADATA)
    )


def environment(
    spec: CheckpointVolumeSpec, access_key: str = "", secret_key: str = ""
) -> dict[str, str]:
    """Return the environment variables by which a process accesses a volume's store.

    The keys are those of its Secret; they are empty if the pod uses its own identity.
    """
    made = {"AWS_REGION": spec.region}
    if spec.endpoint:
        made["AWS_ENDPOINT_URL"] = spec.endpoint
    if spec.endpoint.startswith("http://"):
        made["AWS_ALLOW_HTTP"] = "true"
    if access_key:
        made |= {"AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key}
    return made
