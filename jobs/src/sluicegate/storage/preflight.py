"""Verifies that a checkpoint's store creates an object at most once, before a job depends on it.

Some S3 endpoints ignore `If-None-Match: *`, or check it only without concurrent requests; exactly-once
would be lost silently. The check takes about 20 small requests once per checkpoint and endpoint, and
one request per later start.
"""

from __future__ import annotations

import hashlib
import logging
import socket
import ssl
import uuid
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from sluicegate.errors import (
    AccessDenied,
    PreflightFailed,
    SluicegateError,
    StoreUnavailable,
    StoreUnsafe,
    TargetMissing,
)
from sluicegate.settings.schema import NOTHING_STARTED
from sluicegate.storage.object_store import ObjectStore, open_store
from sluicegate.storage.s3_config import S3Config, bucket_of, is_s3

log = logging.getLogger(__name__)

_RETRY_TIMEOUT_S = 15.0
"""How long requests to an endpoint that does not reply are retried."""

_TLS_TIMEOUT_S = 5.0

_RIVALS = 16
"""Number of concurrent requests that create the same name."""

_ACCESS_DENIED = (
    "403 Forbidden",
    "401 Unauthorized",
    "InvalidAccessKeyId",
    "XAdminUserNotFound",
    "ExpiredToken",
    "InvalidToken",
)
_INVALID = ("400 Bad Request", "incorrectly configured region")
"""The second is obstore's for a 301, S3's answer for a bucket in another region."""

_USE_ANOTHER_ENDPOINT = (
    "use an endpoint that supports `If-None-Match: *`, as Amazon's and versitygw 1.8 do"
)


def verify_conditional_create(checkpoint: str) -> None:
    """Verify that a checkpoint's store exists, grants access and creates an object at most once.

    A local disk is not tested: the kernel guarantees that a hard link is created once.

    Raises:
        TargetMissing: the bucket does not exist.
        AccessDenied: the store rejected the credentials, or they lack a permission.
        StoreUnsafe: an object can be created twice, or conditional creation is not supported.
        StoreUnavailable: the store did not reply.
    """
    if not is_s3(checkpoint):
        return
    endpoint = S3Config.read().endpoint or "amazon"
    proof = f"preflight/{hashlib.sha256(endpoint.encode()).hexdigest()[:16]}"
    store = open_store(checkpoint, retry_timeout_s=_RETRY_TIMEOUT_S)
    try:
        if store.read(proof) is not None:
            return
        winners = _race(store)
        if winners == 1:
            store.create(proof, endpoint.encode())
    except StoreUnavailable as error:
        raise _diagnose(error, bucket_of(checkpoint), endpoint) from error
    if winners is None:
        raise StoreUnsafe(
            f"the S3 endpoint {endpoint} does not list an object that it has just created",
            data="nothing was started; a driver could miss the newest decision stored there",
            do="use an endpoint whose listings are consistent, as Amazon's and versitygw 1.8 are",
        )
    if winners != 1:
        raise StoreUnsafe(
            f"the S3 endpoint {endpoint} let {winners} of {_RIVALS} requests create the same object",
            data="nothing was started; another driver could overwrite a decision stored there",
            do=_USE_ANOTHER_ENDPOINT,
        )
    log.info("S3 endpoint %s passed: %d concurrent creations, one winner", endpoint, _RIVALS)


def _race(store: ObjectStore) -> int | None:
    """Create one object in concurrent requests and return how many of them succeeded.

    None if a listing does not have the object afterwards.
    """
    probe = f"preflight/probe-{uuid.uuid4().hex}"
    contents = [b"%d" % number for number in range(_RIVALS)]
    with ThreadPoolExecutor(_RIVALS) as pool:
        tries = [pool.submit(store.create, probe, content) for content in contents]
        won = [content for content, done in zip(contents, tries, strict=True) if done.result()]
    stored, listed = store.read(probe), probe in store.names("preflight/")
    store.delete(probe)
    if not listed:
        return None
    if not won and stored in contents:
        return 1  # its reply was lost, and the repeated request found the object
    # a winner whose content was replaced has not won
    return 0 if len(won) == 1 and won != [stored] else len(won)


def _diagnose(error: StoreUnavailable, bucket: str, endpoint: str) -> SluicegateError:
    """Return a more specific error for a store that fails at the start."""
    text = str(error)
    kind: type[SluicegateError] = StoreUnavailable
    where = f"the S3 endpoint {endpoint}"
    if "NoSuchBucket" in text:
        kind, what = TargetMissing, f"{where} has no bucket {bucket}"
        do = "create the bucket, or correct the checkpoint's address; Sluicegate creates no buckets"
    elif "RequestTimeTooSkewed" in text:
        what = f"the clock of this machine and that of {where} differ by too much: {error.what}"
        do = "set the clock of this machine, for example by NTP, then restart the driver"
    elif any(sign in text for sign in _ACCESS_DENIED):
        kind, what = AccessDenied, f"{where} denied access to bucket {bucket}: {error.what}"
        do = (
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, which expires; they "
            "need permission to get, put, list and delete objects below the checkpoint"
        )
    elif "501 Not Implemented" in text or "NotImplemented" in text:
        kind, what = StoreUnsafe, f"{where} does not support conditional creation: {error.what}"
        do = _USE_ANOTHER_ENDPOINT
    elif any(sign in text for sign in _INVALID):
        kind = PreflightFailed
        what = f"{where} rejected a request for bucket {bucket} as invalid: {error.what}"
        do = "check the bucket's name and AWS_REGION"
    elif untrusted := _untrusted(endpoint):
        what = f"the certificate of {where} is not trusted ({untrusted})"
        do = (
            "renew the certificate if it has expired or is for another host; otherwise let SSL_CERT_FILE "
            "name a PEM file with the CA that signed it (in a CheckpointVolume: authoritySecret)"
        )
    else:
        what = f"{where} does not answer: {error.what}"
        do = "check AWS_ENDPOINT and the network, then restart the driver"
    return kind(what, data=NOTHING_STARTED, do=do)


def _untrusted(endpoint: str) -> str:
    """Return what is wrong with an HTTPS endpoint's certificate, which obstore does not report; '': nothing."""
    parts = urlsplit(endpoint)
    if parts.scheme != "https" or not parts.hostname:
        return ""
    try:
        with (
            socket.create_connection((parts.hostname, parts.port or 443), _TLS_TIMEOUT_S) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except OSError:
        return ""  # no reply, which the caller reports
