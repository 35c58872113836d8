#!/usr/bin/env bash
# A retrying client interceptor with try/except never retries: failed calls are returned, not raised.
# The reference says that the continuation returns a future; common examples still catch.
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

attempts = []


def fail(request, context):
    attempts.append(request)
    context.abort(grpc.StatusCode.UNAVAILABLE, "the master restarts")


class Service(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(fail)


class Retry(grpc.UnaryUnaryClientInterceptor):
    def intercept_unary_unary(self, continuation, details, request):
        for _ in range(4):
            try:
                return continuation(details, request)
            except grpc.RpcError as error:
                last = error
        raise last


server = grpc.server(ThreadPoolExecutor(1))
server.add_generic_rpc_handlers((Service(),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.intercept_channel(grpc.insecure_channel(f"127.0.0.1:{port}"), Retry())
try:
    channel.unary_unary("/master/Join")(b"", timeout=30)
except grpc.RpcError as error:
    outcome = error.code().name
print(f"grpcio {version('grpcio')}: an interceptor that calls its continuation up to four times, until it raises nothing")
print("Expected: the server sees four attempts.")
print(f"Seen: {len(attempts)} attempt, and the caller gets {outcome}.")
print("The continuation returns the failed call as if it had succeeded. Ask the returned object for its code(),")
print("or retry outside of interceptors.")
server.stop(None)
if len(attempts) != 1 or outcome != "UNAVAILABLE":
    sys.exit("Changed: the continuation of an interceptor raises the error of its call.")
PY
