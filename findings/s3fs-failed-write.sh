#!/usr/bin/env bash
# An exception in the middle of writing with s3fs leaves a complete-looking, truncated object in the bucket.
# fsspec documents transactions as the way around; that the plain way commits is found in issues.
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

import s3fs
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
address, port = server.get_host_and_port()
files = s3fs.S3FileSystem(endpoint_url=f"http://{address}:{port}")
files.mkdir("bucket")


def write(path, chunks):
    try:
        with files.open(path, "wb", block_size=5 * 2**20) as file:
            for chunk in chunks:
                file.write(chunk)
            raise RuntimeError("the collective failed")
    except RuntimeError:
        files.invalidate_cache()
    return files.exists(path) and files.size(path)


small = write("bucket/small", [b"x" * 1000])
large = write("bucket/large", [b"x" * 6 * 2**20, b"x" * 2**20])
print(f"s3fs {version('s3fs')}, moto {version('moto')} as S3: the body of `with files.open(path, 'wb')` raises")
print("Expected: no object appears, since S3 shows an upload only when it is completed.")
print(f"Seen: objects of {small} and {large} bytes, the second by a completed multipart upload.")
print("Leaving the block closes the file, and closing commits what was written until then. So on S3, too,")
print("the object that says 'this checkpoint is complete' must be written last.")
server.stop()
if (small, large) != (1000, 7 * 2**20):
    sys.exit("Changed: s3fs discards an upload when the writer fails.")
PY
