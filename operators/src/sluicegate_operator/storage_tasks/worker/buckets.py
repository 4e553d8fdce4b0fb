"""Creation of a bucket, which obstore cannot do. Only this module uses minio's client.

`objects.check_volume` imports it only if the bucket does not exist.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import urllib3
from minio import Minio
from minio.credentials.providers import EnvAWSProvider, IamAwsProvider
from minio.error import MinioException, S3Error

from sluicegate.errors import AccessDenied, SluicegateError, StoreUnavailable
from sluicegate.storage.s3_config import S3Config
from sluicegate_operator.storage_tasks.worker import egress

_EXISTS = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")
_DENIED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AllAccessDisabled")
_TIMEOUT_S = 15.0


def create_bucket(bucket: str, region: str) -> bool:
    """Create a bucket; return False if it already exists, also under another owner.

    Raises:
        AccessDenied: the keys do not permit it.
        StoreUnavailable: the store did not answer, or refused for another reason.
    """
    try:
        _client(region).make_bucket(bucket, location=region)
    except S3Error as error:
        if error.code in _EXISTS:
            return False
        raise _store_error(bucket, error) from error
    except (MinioException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise StoreUnavailable(
            f"bucket {bucket} could not be created: {error}",
            data="nothing was started",
            do="check the endpoint and the network; the operator keeps trying",
        ) from error
    return True


def _client(region: str) -> Minio:
    config = S3Config.read()
    parts = urlsplit(config.endpoint or "https://s3.amazonaws.com")
    options: dict[str, Any] = {
        "timeout": urllib3.Timeout(_TIMEOUT_S),
        "retries": urllib3.Retry(2, backoff_factor=0.2, redirect=0),
        "ca_certs": os.environ.get("SSL_CERT_FILE"),
    }
    proxy = os.environ.get(egress.PROXY_VARIABLE)
    return Minio(
        parts.netloc,
        credentials=EnvAWSProvider() if config.access_key else IamAwsProvider(),
        secure=parts.scheme == "https",
        region=region,
        http_client=urllib3.ProxyManager(proxy, **options)
        if proxy
        else urllib3.PoolManager(**options),
    )


def _store_error(bucket: str, error: S3Error) -> SluicegateError:
    reason = f"{error.code or ''}: {error.message}"
    if error.code in _DENIED:
        return AccessDenied(
            f"the store denied the creation of bucket {bucket}: {reason}",
            data="nothing was started",
            do="create the bucket by hand, or permit the keys of credentialsSecret to create it",
        )
    return StoreUnavailable(
        f"bucket {bucket} could not be created: {reason}",
        data="nothing was started",
        do="create the bucket by hand, or check its name and region; the operator keeps trying",
    )
