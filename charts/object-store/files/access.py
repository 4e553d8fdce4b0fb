"""The users of the store and what they may do: `python access.py users|buckets`.

USERS is JSON, a list of {name, bucket, prefix, readOnly}; KEYS is a folder with accessKeyId and secretAccessKey of each
user in a folder of its name. `users` writes the file that versitygw reads users from, into IAM_DIR. `buckets`
creates the buckets and sets their policies, with the root key (AWS_ACCESS_KEY_ID) at ENDPOINT, and waits up to
TIMEOUT_S for the server.
"""

import json
import os
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

READ_ACTIONS = ["s3:GetObject"]
OBJECT_ACTIONS = [
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
]


def read_key(user, part):
    """Return one part of a user's key; exits if the Secret lacks it."""
    file = Path(os.environ["KEYS"]) / user["name"] / part
    text = file.read_text(encoding="utf-8").strip() if file.is_file() else ""
    if not text:
        sys.exit(
            f"The Secret of store user {user['name']} lacks {part}. Nothing was changed. Add it."
        )
    return text


def write_users(users):
    """Write users.json; with the role `user` nobody may create buckets, set policies or administer users."""
    accounts = {}
    for user in users:
        access = read_key(user, "accessKeyId")
        if access in accounts or access == os.environ["ROOT_ACCESS_KEY_ID"]:
            sys.exit(
                f"Store user {user['name']} has the accessKeyId of another user or of root. The store is not"
                " started. Give each user an accessKeyId of its own."
            )
        secret = read_key(user, "secretAccessKey")
        accounts[access] = {"access": access, "secret": secret, "role": "user"}
    file = Path(os.environ["IAM_DIR"]) / "users.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"accessAccounts": accounts}), encoding="utf-8")
    print(f"{len(accounts)} users may log in: {', '.join(user['name'] for user in users)}")


def statements(user):
    """Return what the bucket's policy permits to one user: all objects below its prefix, and to list them.

    Only to read them if it is `readOnly`.
    """
    bucket, prefix = f"arn:aws:s3:::{user['bucket']}", user["prefix"].strip("/")
    principal = {"AWS": [read_key(user, "accessKeyId")]}
    objects = f"{bucket}/{prefix}/*" if prefix else f"{bucket}/*"
    # with the slash, because a list of `shop` would show `shop-2` too
    where = {"Condition": {"StringLike": {"s3:prefix": f"{prefix}/*"}}} if prefix else {}
    actions = READ_ACTIONS if user.get("readOnly") else OBJECT_ACTIONS
    return [
        {"Effect": "Allow", "Principal": principal, "Action": actions, "Resource": objects},
        {
            "Effect": "Allow",
            "Principal": principal,
            "Action": "s3:ListBucket",
            "Resource": bucket,
            **where,
        },
    ]


def make_buckets(users):
    """Prepare each bucket; tries again until the server is there and the time is up."""
    # packages of the image; `users` runs without them
    from minio import Minio
    from minio.error import MinioException
    from urllib3.exceptions import HTTPError

    url = urlsplit(os.environ["ENDPOINT"])
    client = Minio(
        endpoint=url.netloc,
        access_key=os.environ["AWS_ACCESS_KEY_ID"],
        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        region=os.environ["AWS_REGION"],
        secure=url.scheme == "https",
    )
    deadline = time.monotonic() + float(os.environ["TIMEOUT_S"])
    for bucket in sorted({user["bucket"] for user in users}):
        while True:
            try:
                prepare(client, bucket, [user for user in users if user["bucket"] == bucket])
                break
            except (MinioException, HTTPError, OSError) as error:
                # also from a server that was started before this release: it does not know a new user
                if time.monotonic() > deadline:
                    sys.exit(
                        f"Bucket {bucket} could not be prepared; its objects are untouched: {error}. Look at the"
                        " log of the store, then upgrade the release again."
                    )
                print(f"waiting for the store: {error}", flush=True)
                time.sleep(1)


def prepare(client, bucket, users):
    """Create a bucket if there is none, and replace its policy. Root alone may do what no policy permits."""
    if not client.bucket_exists(bucket_name=bucket):
        client.make_bucket(bucket_name=bucket)
    document = {
        "Version": "2012-10-17",
        "Statement": [one for user in users for one in statements(user)],
    }
    client.set_bucket_policy(bucket_name=bucket, policy=json.dumps(document))
    print(f"bucket {bucket} is for {', '.join(user['name'] for user in users)}", flush=True)


if __name__ == "__main__":
    {"users": write_users, "buckets": make_buckets}[sys.argv[1]](json.loads(os.environ["USERS"]))
