#!/usr/bin/env bash
# A new gRPC channel waits out the reconnection backoff of an older one of its process, to the same address with the same options.
# Its first calls fail although the server runs. gRPC documents the shared pool of connections; issues describe the effect.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check grpcio==1.85.3
GRPC_VERBOSITY=NONE venv/bin/python - <<'PY'
import socket
import sys
import time
from concurrent import futures
from importlib.metadata import version

import grpc

OUTAGE_SECONDS = 12


class Master(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")


def serve(address):
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Master(),))
    server.add_insecure_port(address)
    server.start()
    return server


def call(channel):
    try:
        channel.unary_unary("/Master/Report")(b"", timeout=10)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"
old = grpc.insecure_channel(address)
end = time.monotonic() + OUTAGE_SECONDS
while time.monotonic() < end:
    call(old)
    time.sleep(0.1)
server = serve(address)
own = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
new = grpc.insecure_channel(address)
new_result, own_result = call(new), call(own)
begin = time.monotonic()
new.unary_unary("/Master/Report")(b"", wait_for_ready=True)
waited = time.monotonic() - begin
server.stop(0)
print(f"grpcio {version('grpcio')}: a server is away for {OUTAGE_SECONDS} s, an old channel calls it in vain; it is back, and a new channel calls it")
print("Expected: a new channel connects at once.")
print(f"Seen: its first call ends with {new_result}; it connects {waited:.1f} s later, when the old channel's pause ended.")
print(f"Seen with grpc.use_local_subchannel_pool=1: {own_result}.")
print("Pauses grow up to two minutes. To open a channel again does not shorten them while such a one exists.")
if (new_result, own_result) != ("UNAVAILABLE", "OK"):
    sys.exit("Changed: a new channel connects at once, or not even with a pool of its own.")
PY
