#!/usr/bin/env bash
# A process that has listed a folder with s3fs never sees the checkpoints that others write there.
# fsspec documents the listing cache; that it never expires by default, and that exists() uses it, surprises.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check s3fs==2026.9.0 'moto[s3]==5.2.5' flask==3.1.2 flask-cors==6.0.1
export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_DEFAULT_REGION=us-east-1
venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import sys
from importlib.metadata import version

import boto3
import s3fs
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
address, port = server.get_host_and_port()
url = f"http://{address}:{port}"
other = boto3.client("s3", endpoint_url=url)  # another pod
other.create_bucket(Bucket="bucket")


def save(step):
    other.put_object(Bucket="bucket", Key=f"run/step-{step}/weights", Body=b"1")


save(100)
files = s3fs.S3FileSystem(endpoint_url=url)
files.ls("bucket/run")
files.ls("bucket/run/step-100")
save(200)
other.delete_object(Bucket="bucket", Key="run/step-100/weights")
listed = [path.rpartition("/")[2] for path in files.ls("bucket/run")]
again = [path.rpartition("/")[2] for path in s3fs.S3FileSystem(endpoint_url=url).ls("bucket/run")]
new = files.exists("bucket/run/step-200")
deleted = files.exists("bucket/run/step-100/weights")
files.invalidate_cache()
fresh = [path.rpartition("/")[2] for path in files.ls("bucket/run")]
print(f"s3fs {version('s3fs')}, moto {version('moto')} as S3: after a listing, another client saves step 200 and deletes step 100")
print("Expected: ls() and exists() ask the store, which is consistent.")
print(f"Seen: ls: {listed}; exists: the new folder {new}, the deleted file {deleted}")
print(f"Seen: a new S3FileSystem is the same object, and lists {again}; after invalidate_cache: {fresh}")
server.stop()
if (listed, again, new, deleted, fresh) != (["step-100"], ["step-100"], False, True, ["step-200"]):
    sys.exit("Changed: s3fs asks the store again.")
PY
