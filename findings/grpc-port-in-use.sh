#!/usr/bin/env bash
# A second gRPC server starts on a port that is in use, and gets a part of the connections of the first one.
# The reference of add_insecure_port says that it returns the bound port; an option of the core library, not that it is on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check grpcio==1.85.3
cat > server.py <<'PY'
import sys
from concurrent import futures

import grpc

name, port = sys.argv[1].encode(), sys.argv[2]


class Coordinator(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: name)


server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Coordinator()])
print(server.add_insecure_port(f"127.0.0.1:{port}"), flush=True)
server.start()
sys.stdin.read()
PY
venv/bin/python - <<'PY'
import subprocess
import sys
from collections import Counter
from importlib.metadata import version

import grpc


def start(name, port):
    process = subprocess.Popen(
        [sys.executable, "server.py", name, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return process, int(process.stdout.readline() or 0)


def ask(port):
    # Each call has a connection of its own, as each worker of a job has.
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        return channel.unary_unary("/coordinator/WhoAreYou")(b"", timeout=20, wait_for_ready=True).decode()


old, port = start("old", 0)
new, second = start("new", port)
try:
    answers = Counter(ask(port) for _ in range(60))
finally:
    for process in (old, new):
        process.stdin.close()
        process.wait()
print(f"grpcio {version('grpcio')}: a coordinator is started although an earlier one still serves at the port")
print("Expected: the second server fails: the address is in use.")
print(f"Seen: it starts, with the same port: {second == port}. Both answer: {sorted(answers)}.")
print("The workers of a job are divided among the two by chance. The option grpc.so_reuseport=0 makes the second one fail.")
if second != port or set(answers) != {"old", "new"}:
    sys.exit("Changed: a second server at a port in use fails, or gets no connection.")
PY
