#!/usr/bin/env bash
# With deserialize=False a Watch of the Python client does not follow the resource version of its events.
# When the API server ends a connection, as it does every few minutes, the loop ends or gets old events again. It is not documented.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check kubernetes==37.0.2
venv/bin/python - <<'PY'
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from urllib.parse import parse_qs, urlparse

from kubernetes import client, watch

connections = []


def event(number):
    metadata = {"name": f"worker-{number}", "resourceVersion": str(100 + number)}
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"containers": [{"name": "train"}]}}
    return json.dumps({"type": "ADDED", "object": pod}).encode() + b"\n"


class ApiServer(BaseHTTPRequestHandler):
    """Creates a pod for each connection, sends the events since the version that is asked for, and ends the connection."""

    def do_GET(self):
        since = int(parse_qs(urlparse(self.path).query).get("resourceVersion", ["100"])[0]) - 100
        connections.append(since)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        for number in range(since + 1, len(connections) + 1):
            self.wfile.write(event(number))

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
threading.Thread(target=server.serve_forever, daemon=True).start()
api = client.CoreV1Api(client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{server.server_port}")))


def watched(**options):
    """Return the names of the pods in the events until that of the third pod, or the end of the loop."""
    connections.clear()
    names = []
    pods = watch.Watch()
    for each in pods.stream(api.list_namespaced_pod, "default", **options):
        names.append(each["raw_object" if "raw_object" in each else "object"]["metadata"]["name"])
        if names[-1] == "worker-3":
            pods.stop()
    return " ".join(names)


usual = [watched(), watched(resource_version="100")]
raw = [watched(deserialize=False), watched(deserialize=False, resource_version="100")]
print(f"kubernetes {version('kubernetes')}: three pods are created; the server ends the connection after each one, and the Watch connects again")
print("Expected: each pod comes once, as an object or, with deserialize=False, as a dict.")
print(f"Seen: {usual[0]}; with the version of a list: {usual[1]}")
print(f"Seen with deserialize=False: {raw[0]}; then the loop ends, without an error")
print(f"Seen with deserialize=False and the version of a list: {raw[1]}")
print("A controller that saves the time of conversion goes deaf, or counts a worker again at every new connection.")
once, again = "worker-1 worker-2 worker-3", "worker-1 worker-1 worker-2 worker-1 worker-2 worker-3"
if usual != [once, once] or raw != ["worker-1", again]:
    sys.exit("Changed: a Watch without conversion continues where it was, or one with it does not.")
PY
