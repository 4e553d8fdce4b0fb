"""How to reach S3: endpoint, credentials and TLS, from the AWS_* variables.

obstore reads the same variables itself. Spark's S3A does not, so `spark.s3a` configures it from
here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sluicegate.errors import SettingsInvalid

_ENDPOINTS = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_TRUE = frozenset({"1", "true", "on", "yes", "y", "t"})
"""The spellings that obstore accepts."""


@dataclass(frozen=True)
class S3Config:
    """The S3 settings in an environment.

    Args:
        endpoint: a URL; empty: Amazon's.
        region: empty: not set.
        access_key: empty: the machine has a role instead.
        secret_key: the secret of the access key.
        session_token: token of temporary credentials.
        web_identity: a token file names the role, as in Kubernetes on Amazon.
        ca_file: PEM file of the CAs that may sign the store's certificate; empty: the system's, or
            the endpoint does not use TLS.
        virtual_hosts: the bucket is part of the host name, not of the path.
    """

    endpoint: str = ""
    region: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    web_identity: bool = False
    ca_file: str = ""
    virtual_hosts: bool = False

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> S3Config:
        """Read the AWS_* variables; raises SettingsInvalid if they contradict each other."""
        endpoint = _one_of(_ENDPOINTS, environment)
        keys = (
            environment.get("AWS_ACCESS_KEY_ID", ""),
            environment.get("AWS_SECRET_ACCESS_KEY", ""),
        )
        if bool(keys[0]) != bool(keys[1]):
            raise SettingsInvalid(
                "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set",
                data="nothing was started",
                do="set both, or neither if the machine has a role",
            )
        if urlsplit(endpoint).scheme == "http" and not _is_true(environment, "AWS_ALLOW_HTTP"):
            raise SettingsInvalid(
                f"the S3 endpoint {endpoint} uses plain HTTP, but AWS_ALLOW_HTTP is not set",
                data="nothing was started",
                do="use https, or set AWS_ALLOW_HTTP=true if you trust the network",
            )
        return cls(
            endpoint=endpoint,
            region=next((environment[n] for n in _REGIONS if environment.get(n)), ""),
            access_key=keys[0],
            secret_key=keys[1],
            session_token=environment.get("AWS_SESSION_TOKEN", ""),
            web_identity=bool(environment.get("AWS_WEB_IDENTITY_TOKEN_FILE")),
            ca_file="" if endpoint.startswith("http:") else environment.get("SSL_CERT_FILE", ""),
            virtual_hosts=_is_true(environment, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"),
        )


_S3_SCHEMES = ("s3://", "s3a://")


def is_s3(url: str) -> bool:
    """Return whether an address is on S3."""
    return url.startswith(_S3_SCHEMES)


def bucket_of(url: str) -> str:
    """Return the bucket of an S3 URL; raises SettingsInvalid like `split_s3`."""
    return split_s3(url)[0]


def split_s3(url: str) -> tuple[str, str]:
    """Return the bucket and the prefix of an S3 URL, without '/' at the ends of the prefix.

    The prefix is the text of the URL, character by character: `s3://bucket/shop/#/1` must never mean
    the folder `shop`, which `urlsplit` would return.

    Raises:
        SettingsInvalid: the URL has a '#' or '?', a part '.' or '..', an empty part, or a control
            character: clients of S3 disagree about what such a URL names.
    """
    bucket, _, path = url.partition("://")[2].partition("/")
    prefix = path.strip("/")
    parts = prefix.split("/") if prefix else []
    wrong = {"", ".", ".."} & set(parts)
    if not bucket or set("#?\\") & set(url) or wrong or not url.isprintable():
        raise SettingsInvalid(
            f"{url!r} is not an S3 URL: it has a '#', '?', '\\', an empty part, a part '.' or '..', "
            "a control character, or no bucket",
            data="nothing was read, written or deleted",
            do="use s3://bucket/prefix, whose parts are separated by a single '/'",
        )
    return bucket, prefix


def _one_of(names: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """Return the value that the variables agree on, because obstore and S3A must use the same."""
    values = {environment[name].rstrip("/") for name in names if environment.get(name)}
    if len(values) > 1:
        raise SettingsInvalid(
            f"{' and '.join(names)} name different S3 endpoints",
            data="nothing was started",
            do="set only one of them",
        )
    return values.pop() if values else ""


def _is_true(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() in _TRUE
