"""Proves that a checkpoint's store creates an object once, before a job may trust it with a decision.

Some S3 endpoints ignore `If-None-Match: *`, or check it only where nobody races; exactly-once would
be lost without a sign. Done once for a checkpoint and endpoint (some 20 small requests), then one
request a start. Called by `spark.query`.
"""

from __future__ import annotations

import hashlib
import logging
import socket
import ssl
import uuid
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from sluicegate.protocol.errors import (
    AccessDenied,
    PreflightFailed,
    SluicegateError,
    StoreUnavailable,
    StoreUnfit,
    TargetMissing,
)
from sluicegate.storage.objects import Objects, open_objects
from sluicegate.storage.s3 import S3Environment, bucket_of, is_s3

log = logging.getLogger(__name__)

_PATIENCE_S = 15.0
"""How long an endpoint that does not answer is asked again."""

_HANDSHAKE_S = 5.0

_RIVALS = 16
"""Creations of one name at the same time."""

_ACCESS = ("403 Forbidden", "401 Unauthorized", "InvalidAccessKeyId", "XAdminUserNotFound")


def require_create_once(checkpoint: str) -> None:
    """See that a checkpoint's store is there, lets us in, and creates an object once.

    A local disk is taken at its word: the link that creates an object is the kernel's promise.

    Raises:
        TargetMissing: there is no such bucket.
        AccessDenied: the store refused the keys, or a right that they lack.
        StoreUnfit: it lets an object be created twice, or cannot create conditionally.
        StoreUnavailable: it did not answer.
    """
    if not is_s3(checkpoint):
        return
    endpoint = S3Environment.read().endpoint or "amazon"
    proof = f"preflight/{hashlib.sha256(endpoint.encode()).hexdigest()[:16]}"
    objects = open_objects(checkpoint, patience_s=_PATIENCE_S)
    try:
        if objects.read(proof) is not None:
            return
        winners = _race(objects)
        if winners == 1:
            objects.create(proof, endpoint.encode())
    except StoreUnavailable as error:
        raise _told(error, bucket_of(checkpoint), endpoint) from error
    if winners != 1:
        raise StoreUnfit(
            f"the S3 endpoint {endpoint} let {winners} of {_RIVALS} requests create the same object",
            data="nothing was started; a decision written there could be overwritten by another driver",
            do="use an endpoint that honours `If-None-Match: *`, as Amazon's and versitygw 1.8 do",
        )
    log.info("the S3 endpoint %s creates an object once: %d rivals, one winner", endpoint, _RIVALS)


def _race(objects: Objects) -> int:
    """Return how many of many requests at the same time created one object."""
    probe = f"preflight/probe-{uuid.uuid4().hex}"
    with ThreadPoolExecutor(_RIVALS) as pool:
        tries = [pool.submit(objects.create, probe, b"%d" % i) for i in range(_RIVALS)]
        won = [i for i, done in enumerate(tries) if done.result()]
    stored = objects.read(probe)
    objects.delete(probe)
    # a winner whose bytes were replaced has not won
    return len(won) if len(won) != 1 or stored == b"%d" % won[0] else 0


def _told(error: StoreUnavailable, bucket: str, endpoint: str) -> SluicegateError:
    """Say what a person can do about a store that fails before anything has begun."""
    text = str(error)
    nothing = "nothing was started"
    if "NoSuchBucket" in text:
        return TargetMissing(
            f"the S3 endpoint {endpoint} has no bucket {bucket}",
            data=nothing,
            do="create the bucket, or correct the checkpoint's URL; Sluicegate creates none",
        )
    if any(sign in text for sign in _ACCESS):
        return AccessDenied(
            f"the S3 endpoint {endpoint} refused access to bucket {bucket}: {error.what}",
            data=nothing,
            do="see AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; the keys need the rights to get, put, "
            "list and delete objects below the checkpoint",
        )
    if "501 Not Implemented" in text or "NotImplemented" in text:
        return StoreUnfit(
            f"the S3 endpoint {endpoint} does not know conditional creation: {error.what}",
            data=nothing,
            do="use an endpoint that honours `If-None-Match: *`, as Amazon's and versitygw 1.8 do",
        )
    if "400 Bad Request" in text:
        return PreflightFailed(
            f"the S3 endpoint {endpoint} does not understand requests for bucket {bucket}: {error.what}",
            data=nothing,
            do="see the bucket's name and AWS_REGION",
        )
    if untrusted := _untrusted(endpoint):
        return StoreUnavailable(
            f"the certificate of the S3 endpoint {endpoint} is not trusted: {untrusted}",
            data=nothing,
            do="renew it where it is out of date or of another host; else let SSL_CERT_FILE name a PEM file "
            "with the authority that signed it (of a CheckpointVolume: authoritySecret)",
        )
    return StoreUnavailable(
        f"the S3 endpoint {endpoint} does not answer: {error.what}",
        data=nothing,
        do="see AWS_ENDPOINT and the network; the driver may be started again",
    )


def _untrusted(endpoint: str) -> str:
    """Return what is wrong with an https endpoint's certificate, which obstore does not say; empty: nothing."""
    parts = urlsplit(endpoint)
    if parts.scheme != "https" or not parts.hostname:
        return ""
    try:
        with (
            socket.create_connection((parts.hostname, parts.port or 443), _HANDSHAKE_S) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return ""
    except ssl.SSLCertVerificationError as refused:
        return refused.verify_message
    except OSError:
        return ""  # it does not answer, which the caller says
