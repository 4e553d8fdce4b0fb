"""Makes a bucket, which obstore cannot do: the only place where minio's client is used.

Called by `preparing`, and imported only when there is no bucket.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import urllib3
from minio import Minio
from minio.credentials.providers import EnvAWSProvider, IamAwsProvider
from minio.error import MinioException, S3Error

from sluicegate.protocol.errors import AccessDenied, SluicegateError, StoreUnavailable
from sluicegate.storage.s3 import S3Environment

_THERE = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})
_REFUSED = frozenset(
    {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AllAccessDisabled"}
)
_TIMEOUT_S = 15.0


def make(bucket: str, region: str) -> bool:
    """Make a bucket; False if it is there already, whoever made it.

    Raises:
        AccessDenied: the keys may not.
        StoreUnavailable: no answer, or another refusal.
    """
    try:
        _client(region).make_bucket(bucket, location=region)
    except S3Error as error:
        if error.code in _THERE:
            return False
        raise _told(bucket, error.code or "", str(error.message)) from error
    except (MinioException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise StoreUnavailable(
            f"the store did not make bucket {bucket}: {error}",
            data="nothing was started",
            do="look at the endpoint and the network; it is tried again",
        ) from error
    return True


def _client(region: str) -> Minio:
    where = S3Environment.read()
    parts = urlsplit(where.endpoint or "https://s3.amazonaws.com")
    return Minio(
        parts.netloc,
        credentials=EnvAWSProvider() if where.access_key else IamAwsProvider(),
        secure=parts.scheme == "https",
        region=region,
        http_client=urllib3.PoolManager(
            timeout=urllib3.Timeout(_TIMEOUT_S),
            retries=urllib3.Retry(2, backoff_factor=0.2),
            ca_certs=os.environ.get("SSL_CERT_FILE"),
        ),
    )


def _told(bucket: str, code: str, message: str) -> SluicegateError:
    if code in _REFUSED:
        return AccessDenied(
            f"the store refused to make bucket {bucket}: {code}: {message}",
            data="nothing was started",
            do="make the bucket by hand, or give the keys of credentialsSecret the right to",
        )
    return StoreUnavailable(
        f"the store did not make bucket {bucket}: {code}: {message}",
        data="nothing was started",
        do="make the bucket by hand, or see its name and region; it is tried again",
    )
