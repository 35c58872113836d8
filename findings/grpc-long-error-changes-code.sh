#!/usr/bin/env bash
# A long error message replaces the status code of a gRPC call: the client sees RESOURCE_EXHAUSTED.
# The metadata limit is documented as a channel argument; that error messages count is found in issues.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check grpcio==1.85.3
venv/bin/python - <<'PY'
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import grpc


def fail(request, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "x" * int(request))


class Service(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(fail)


server = grpc.server(ThreadPoolExecutor(1))
server.add_generic_rpc_handlers((Service(),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")


def code(length):
    try:
        channel.unary_unary("/master/Join")(str(length).encode(), timeout=30)
    except grpc.RpcError as error:
        return error.code().name, error.details()


print(f"grpcio {version('grpcio')}: a server aborts with FAILED_PRECONDITION and a message of the given length")
print("Expected: the client gets this code; at worst the message is cut.")
codes = {length: code(length) for length in (1000, 20000)}
for length, (name, details) in codes.items():
    print(f"Seen: {length} characters: {name}: {details[:90]}")
print("The traceback of a training function is easily that long. A client that retries RESOURCE_EXHAUSTED,")
print("and gives up at FAILED_PRECONDITION, then retries for ever, and nobody reads the message.")
server.stop(None)
if [name for name, _ in codes.values()] != ["FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"]:
    sys.exit("Changed: a long message keeps its status code.")
PY
