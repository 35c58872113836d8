#!/usr/bin/env bash
# The Python client removes the fields that its version does not know when an object is read, changed and replaced.
# Kubeflow's SDK 0.5.0 forbids a client newer than 35. Issues describe the effect; the documentation of replace does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > scale.py <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kubernetes import client

pod = {"containers": [{"name": "train", "image": "train:1"}], "evictionResponders": [{"name": "example.com/checkpoint", "priority": 1}]}
labels = {"app": "worker"}
template = {"metadata": {"labels": labels}, "spec": pod}
spec = {"replicas": 2, "selector": {"matchLabels": labels}, "serviceName": "worker", "template": template}
stored = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "worker"}, "spec": spec}


class ApiServer(BaseHTTPRequestHandler):
    """Keeps the StatefulSet of the workers."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(stored).encode())

    def do_PUT(self):
        stored.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.do_GET()

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
threading.Thread(target=server.serve_forever, daemon=True).start()
configuration = client.Configuration(host=f"http://127.0.0.1:{server.server_port}")
api = client.AppsV1Api(client.ApiClient(configuration))
workers = api.read_namespaced_stateful_set("worker", "default")
workers.spec.replicas = 4
api.replace_namespaced_stateful_set("worker", "default", workers)
print(*sorted(stored["spec"]["template"]["spec"]))
PY
scale() {
    python3 -m venv "$1"
    "$1/bin/pip" install -q --no-compile --disable-pip-version-check "kubernetes==$1"
    "$1/bin/python" scale.py
}
old=$(scale 35.0.0)
new=$(scale 37.0.2)
echo "kubernetes 35.0.0 and 37.0.2: a StatefulSet is read, its replicas are changed from 2 to 4, and it is replaced"
echo "Expected: only the number of replicas changes; the pods' spec keeps its containers and evictionResponders (Kubernetes 1.37)."
echo "Seen with 37.0.2: the pods' spec has: $new"
echo "Seen with 35.0.0: the pods' spec has: $old"
echo "No warning appears, and new pods start without what was removed. A patch of spec.replicas changes nothing else."
if [ "$new" != "containers evictionResponders" ] || [ "$old" != "containers" ]; then
    echo "Changed: fields that the client does not know survive, or those that it knows do not."
    exit 1
fi
