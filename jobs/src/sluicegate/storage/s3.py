"""Where S3 is and who we are there, read once from the AWS_* variables, for all who need it.

obstore reads the same variables itself; Spark's S3A does not, so `spark.s3` hands them on. Not
here: the objects (`objects`), and whether the store is fit (`checkpoint.preflight`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sluicegate.protocol.errors import SettingsInvalid

_ENDPOINTS = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_TRUE = frozenset({"1", "true", "on", "yes", "y", "t"})
"""As obstore reads a truth."""


@dataclass(frozen=True)
class S3Environment:
    """The variables that say how to reach S3.

    Args:
        endpoint: URL; empty for Amazon's.
        region: empty if none is named.
        access_key: empty where the machine has a role instead.
        secret_key: belongs to the access key.
        session_token: of temporary keys.
        web_identity: a token file names the role, as in Kubernetes on Amazon.
        authorities: PEM file with those that may sign the store's certificate; empty: the system's, or
            there is no certificate.
        virtual_hosts: the bucket stands in the host's name, not in the path.
    """

    endpoint: str = ""
    region: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    web_identity: bool = False
    authorities: str = ""
    virtual_hosts: bool = False

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> S3Environment:
        """Read AWS_ENDPOINT or AWS_ENDPOINT_URL, AWS_REGION, the keys, and AWS_ALLOW_HTTP.

        Raises:
            SettingsInvalid: they contradict each other.
        """
        endpoint = _one_of(_ENDPOINTS, environment)
        keys = (
            environment.get("AWS_ACCESS_KEY_ID", ""),
            environment.get("AWS_SECRET_ACCESS_KEY", ""),
        )
        if bool(keys[0]) != bool(keys[1]):
            raise SettingsInvalid(
                "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only one is set",
                data="nothing was started",
                do="set both, or none where the machine has a role",
            )
        if urlsplit(endpoint).scheme == "http" and not _truth(environment, "AWS_ALLOW_HTTP"):
            raise SettingsInvalid(
                f"the S3 endpoint {endpoint} is not encrypted, and AWS_ALLOW_HTTP is not set",
                data="nothing was started",
                do="set AWS_ALLOW_HTTP=true if the network is yours, or use https",
            )
        return cls(
            endpoint=endpoint,
            region=next((environment[n] for n in _REGIONS if environment.get(n)), ""),
            access_key=keys[0],
            secret_key=keys[1],
            session_token=environment.get("AWS_SESSION_TOKEN", ""),
            web_identity=bool(environment.get("AWS_WEB_IDENTITY_TOKEN_FILE")),
            authorities=""
            if endpoint.startswith("http:")
            else environment.get("SSL_CERT_FILE", ""),
            virtual_hosts=_truth(environment, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"),
        )


def is_s3(url: str) -> bool:
    """Return whether a checkpoint's URL is of S3."""
    return urlsplit(url).scheme in ("s3", "s3a")


def bucket_of(url: str) -> str:
    """Return the bucket of an S3 URL."""
    return urlsplit(url).netloc


def _one_of(names: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """Return the value that the variables agree on: obstore and S3A must not differ in it."""
    found = {environment[name].rstrip("/") for name in names if environment.get(name)}
    if len(found) > 1:
        raise SettingsInvalid(
            f"{' and '.join(names)} name two different S3 endpoints",
            data="nothing was started",
            do="set one of them",
        )
    return found.pop() if found else ""


def _truth(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() in _TRUE
