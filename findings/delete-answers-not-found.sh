#!/usr/bin/env bash
# A deletion that succeeded is reported as "not found": the client silently sends it twice.
# urllib3 documents its retries; the Kubernetes client does not say that its writes are repeated.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check kubernetes==37.0.2 urllib3==2.8.0
venv/bin/python - <<'PY'
import json
import logging
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version

from kubernetes import client

logging.disable(logging.WARNING)
pods = {"worker-3"}
requests = []


class ApiServer(BaseHTTPRequestHandler):
    """Deletes a pod, and loses the connection before the first answer, as a restarting server does."""

    def do_DELETE(self):
        requests.append("DELETE")
        if pods:
            pods.clear()
            self.close_connection = True
            return
        body = json.dumps({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}).encode()
        self.send_response(404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
threading.Thread(target=server.serve_forever, daemon=True).start()
host = f"http://127.0.0.1:{server.server_port}"
api = client.CoreV1Api(client.ApiClient(client.Configuration(host=host)))
try:
    api.delete_namespaced_pod("worker-3", "default")
    answer = "no error"
except client.ApiException as error:
    answer = f"ApiException {error.status}"
except Exception as error:
    answer = type(error).__name__
print(f"kubernetes {version('kubernetes')}, urllib3 {version('urllib3')}: one delete_namespaced_pod, whose first answer is lost")
print("Expected: one request, and an error about the connection.")
print(f"Seen: {len(requests)} requests, then {answer}, though this very call deleted the pod.")
print("A scale-in that counts 404 as 'somebody else removed it' draws the wrong conclusion.")
if len(requests) != 2 or answer != "ApiException 404":
    sys.exit("Changed: the client does not repeat a DELETE whose answer is lost, or reports it otherwise.")
PY
