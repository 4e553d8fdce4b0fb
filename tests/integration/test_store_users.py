"""Users of the object store, made by the script of its chart: each has its prefix and nothing else.

Requests are signed here and sent as they are, because clients tidy up the paths that an attacker would not.
"""

import base64
import hashlib
import http.client
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import obstore
import pytest
from minio.credentials.credentials import Credentials
from minio.signer import sign_v4_s3
from obstore.store import S3Store

from infra.local_services.s3 import S3Endpoint, S3Server
from infra.toolchain import go_programs
from sluicegate.console.reader import Reader

_SECRET = b"what only bank may read"
_USERS = {"shop": "s3://shared/shop", "bank": "s3://shared/bank", "own": "s3://own"}
_READERS = {"console": "s3://shared/shop", "console-of-own": "s3://own/team"}


def _request(
    user: S3Endpoint,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> tuple[int, bytes]:
    """Send a signed request; `target` is a path with its query, as it goes over the wire."""
    url = urlsplit(user.endpoint + target)
    digest, now = hashlib.sha256(body).hexdigest(), datetime.now(UTC)
    signed = sign_v4_s3(
        method=method,
        url=url,
        region="us-east-1",
        headers={
            "Host": url.netloc,
            "x-amz-content-sha256": digest,
            "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"),
            **(headers or {}),
        },
        credentials=Credentials(user.access_key, user.secret_key),
        content_sha256=digest,
        date=now,
    )
    connection = http.client.HTTPConnection(url.netloc, timeout=10)
    try:
        connection.request(
            method, target, body=body, headers={name: str(text) for name, text in signed.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _store(user: S3Endpoint, bucket: str = "shared") -> S3Store:
    return S3Store(
        bucket,
        endpoint=user.endpoint,
        access_key_id=user.access_key,
        secret_access_key=user.secret_key,
        region="us-east-1",
        client_options={"allow_http": True},
    )


def _objects(root: S3Endpoint) -> dict[str, bytes]:
    """Return every object of the shared bucket, as root sees it."""
    store = _store(root)
    names = [entry["path"] for page in obstore.list(store) for entry in page]
    return {name: obstore.get(store, name).bytes().to_bytes() for name in names}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Yield a store with an object of bank and one of shop."""
    if reason := go_programs.VERSITYGW.missing_reason():
        pytest.skip(reason)
    server = S3Server(tmp_path_factory.mktemp("users"), users=_USERS | _READERS, read_only=_READERS)
    server.start()
    try:
        server.make_buckets()
        for name in ("shop", "bank"):
            key, content = f"/shared/{name}/epochs/1", _SECRET if name == "bank" else b"shop's"
            assert _request(server.users[name], "PUT", key, body=content)[0] == 200
        yield server
    finally:
        server.stop()


def test_a_user_reads_writes_lists_and_deletes_below_its_prefix(server: S3Server) -> None:
    shop = server.users["shop"]
    assert _request(shop, "PUT", "/shared/shop/new", {"If-None-Match": "*"})[0] == 200
    assert _request(shop, "PUT", "/shared/shop/new", {"If-None-Match": "*"})[0] == 412
    copied = {"x-amz-copy-source": "/shared/shop/epochs/1"}
    assert _request(shop, "PUT", "/shared/shop/new", copied)[0] == 200
    assert _request(shop, "GET", "/shared/shop/new") == (200, b"shop's")
    status, found = _request(shop, "GET", "/shared?list-type=2&prefix=shop%2F")
    assert (status, found.count(b"<Key>")) == (200, 2)
    assert _request(shop, "DELETE", "/shared/shop/new")[0] == 204


def test_a_user_that_only_reads_changes_nothing(server: S3Server) -> None:
    console = server.users["console"]
    assert _request(console, "GET", "/shared/shop/epochs/1") == (200, b"shop's")
    assert _request(console, "GET", "/shared?list-type=2&prefix=shop%2F")[0] == 200
    before = _objects(server.endpoint)
    for name, attack in _ATTACKS.items():
        assert attack(console)[0] in (403, 404), name
    for method in ("PUT", "DELETE"):
        assert _request(console, method, "/shared/shop/epochs/1")[0] == 403
    assert _request(console, "PUT", "/shared/shop/epochs/2", {"If-None-Match": "*"})[0] == 403
    assert _objects(server.endpoint) == before


def test_the_console_reads_with_keys_that_only_read(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, lineage = server.users["own"], b'{"id": "l", "job": "orders"}'
    assert _request(writer, "PUT", "/own/team/orders/lineage.json", body=lineage)[0] == 200
    console = server.users["console-of-own"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", console.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", console.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", console.secret_key)
    reader = Reader(["s3://own/team"])
    try:
        job = reader.job("orders")
    finally:
        reader.close()
    assert job is not None
    assert (job.name, job.problems, job.notes) == ("orders", (), ())


def _delete_many(user: S3Endpoint, key: str) -> tuple[int, bytes]:
    body = f"<Delete><Object><Key>{key}</Key></Object></Delete>".encode()
    checked = {
        "Content-MD5": base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    }
    return _request(user, "POST", "/shared?delete=", checked, body)


_NEW_USER = b"<Account><Access>mine</Access><Secret>mine-too</Secret><Role>admin</Role></Account>"
_POLICY = (
    b'{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:ListBucket",'
    b'"Resource":["arn:aws:s3:::shared"]}]}'
)

_ATTACKS: Mapping[str, Callable[[S3Endpoint], tuple[int, bytes]]] = {
    "read": lambda user: _request(user, "GET", "/shared/bank/epochs/1"),
    "ask for": lambda user: _request(user, "HEAD", "/shared/bank/epochs/1"),
    "read by dots": lambda user: _request(user, "GET", "/shared/shop/../bank/epochs/1"),
    "read by escaped dots": lambda user: _request(user, "GET", "/shared/shop/%2e%2e/bank/epochs/1"),
    "read by an escaped slash": lambda user: _request(
        user, "GET", "/shared/shop%2f..%2fbank/epochs/1"
    ),
    "read by two slashes": lambda user: _request(user, "GET", "/shared//bank/epochs/1"),
    "replace": lambda user: _request(user, "PUT", "/shared/bank/epochs/1", body=b"forged"),
    "create": lambda user: _request(user, "PUT", "/shared/bank/epochs/2", {"If-None-Match": "*"}),
    "create by dots": lambda user: _request(user, "PUT", "/shared/shop/../bank/epochs/2"),
    "create a sibling": lambda user: _request(user, "PUT", "/shared/shop-2/epochs/1"),
    "upload in parts": lambda user: _request(user, "POST", "/shared/bank/large?uploads="),
    "delete": lambda user: _request(user, "DELETE", "/shared/bank/epochs/1"),
    "copy from": lambda user: _request(
        user, "PUT", "/shared/shop/stolen", {"x-amz-copy-source": "/shared/bank/epochs/1"}
    ),
    "copy from, by dots": lambda user: _request(
        user, "PUT", "/shared/shop/stolen", {"x-amz-copy-source": "/shared/shop/../bank/epochs/1"}
    ),
    "copy to": lambda user: _request(
        user, "PUT", "/shared/bank/epochs/2", {"x-amz-copy-source": "/shared/shop/epochs/1"}
    ),
    "list": lambda user: _request(user, "GET", "/shared?list-type=2&prefix=bank%2F"),
    "list all": lambda user: _request(user, "GET", "/shared?list-type=2"),
    "list siblings": lambda user: _request(user, "GET", "/shared?list-type=2&prefix=shop"),
    "list uploads": lambda user: _request(user, "GET", "/shared?uploads="),
    "list versions": lambda user: _request(user, "GET", "/shared?versions="),
    "list another bucket": lambda user: _request(user, "GET", "/own?list-type=2"),
    "create a bucket": lambda user: _request(user, "PUT", "/mine"),
    "delete a bucket": lambda user: _request(user, "DELETE", "/own"),
    "read the policy": lambda user: _request(user, "GET", "/shared?policy="),
    "set the policy": lambda user: _request(user, "PUT", "/shared?policy=", body=_POLICY),
    "delete the policy": lambda user: _request(user, "DELETE", "/shared?policy="),
    "set the ACL": lambda user: _request(
        user, "PUT", "/shared?acl=", {"x-amz-acl": "public-read-write"}
    ),
    "create a user": lambda user: _request(user, "PATCH", "/create-user", body=_NEW_USER),
    "list users": lambda user: _request(user, "PATCH", "/list-users"),
    "own a bucket": lambda user: _request(
        user, "PATCH", f"/change-bucket-owner?bucket=shared&owner={user.access_key}"
    ),
    "sign with a key of its own making": lambda user: _request(
        S3Endpoint(user.url, user.endpoint, user.access_key, "guessed"),
        "GET",
        "/shared/shop/epochs/1",
    ),
}


@pytest.mark.parametrize("attack", _ATTACKS)
def test_security_h10_the_key_of_a_user_opens_nothing_else(server: S3Server, attack: str) -> None:
    before = _objects(server.endpoint)
    status, found = _ATTACKS[attack](server.users["shop"])
    assert status == 403, found
    assert _SECRET not in found
    assert _objects(server.endpoint) == before


@pytest.mark.parametrize(
    "prefix", ["shop%2F..%2Fbank%2F", "shop%2F..%2F", "shop%2F&prefix=bank%2F"]
)
def test_security_h10_no_prefix_of_a_list_leaves_the_users_own(
    server: S3Server, prefix: str
) -> None:
    target = f"/shared?list-type=2&prefix={prefix}"
    assert b"<Key>bank" not in _request(server.users["shop"], "GET", target)[1]


def test_security_h10_a_bulk_deletion_spares_what_is_not_the_users(server: S3Server) -> None:
    before = _objects(server.endpoint)
    for key in ("bank/epochs/1", "shop/../bank/epochs/1"):
        status, found = _delete_many(server.users["shop"], key)
        assert status == 200
        assert b"<Deleted>" not in found
    assert _objects(server.endpoint) == before


def test_a_user_that_was_removed_may_not_log_in_after_a_restart(tmp_path: Path) -> None:
    if reason := go_programs.VERSITYGW.missing_reason():
        pytest.skip(reason)
    statuses = []
    for users in (_USERS, {"bank": _USERS["bank"]}):
        server = S3Server(tmp_path, users=users)
        server.start()
        try:
            server.make_buckets()
            shop = S3Server(tmp_path, users=_USERS).users["shop"]
            user = S3Endpoint(shop.url, server.endpoint.endpoint, shop.access_key, shop.secret_key)
            statuses.append(_request(user, "PUT", "/shared/shop/x")[0])
        finally:
            server.stop()
    assert statuses == [200, 403]
