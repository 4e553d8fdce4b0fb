"""`helm test`: put an object into the store and get it back, with signed requests."""

import io
import os
from urllib.parse import urlsplit

from minio import Minio

url = urlsplit(os.environ["ENDPOINT"])
client = Minio(
    endpoint=url.netloc,
    access_key=os.environ["AWS_ACCESS_KEY_ID"],
    secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
    region=os.environ["AWS_REGION"],
    secure=url.scheme == "https",
)
bucket, name, content = "helm-test", "asked", os.urandom(1024)
if not client.bucket_exists(bucket_name=bucket):
    client.make_bucket(bucket_name=bucket)
client.put_object(bucket_name=bucket, object_name=name, data=io.BytesIO(content), length=1024)
answer = client.get_object(bucket_name=bucket, object_name=name)
try:
    found = answer.read()
finally:
    answer.close()
    answer.release_conn()
if found != content:
    raise SystemExit(f"{name} was put with 1024 bytes but {len(found)} other bytes came back")
client.remove_object(bucket_name=bucket, object_name=name)
client.remove_bucket(bucket_name=bucket)
print(f"{url.geturl()} accepts signed requests and returns what was put")
