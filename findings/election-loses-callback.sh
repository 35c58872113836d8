#!/usr/bin/env bash
# The Python client's leader election does not call onstopped_leading if the API server cannot be reached: run() raises.
# It calls it if the server answers with an error. The docstrings do not mention it; client-go calls its own always.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check kubernetes==37.0.2 urllib3==2.8.0
cat > lead.py <<'PY'
import json
import logging
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kubernetes import client
from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

logging.disable(logging.ERROR)
leases = []
failing = threading.Event()


class ApiServer(BaseHTTPRequestHandler):
    """Keeps one Lease."""

    def answer(self, code, body):
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def do_GET(self):
        code = 503 if failing.is_set() else 200 if leases else 404
        self.answer(code, leases[-1] if code == 200 else {"kind": "Status", "code": code})

    def do_POST(self):
        leases.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(200, leases[-1])

    do_PUT = do_POST

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
threading.Thread(target=server.serve_forever, daemon=True).start()
client.Configuration.set_default(client.Configuration(host=f"http://127.0.0.1:{server.server_port}"))
leads = threading.Event()
stops = []


def lead():
    while not stops:
        leads.set()
        time.sleep(0.1)


def outage():
    leads.wait()
    if sys.argv[1] == "answers":
        failing.set()
    else:
        server.shutdown()
        server.server_close()


threading.Thread(target=outage, daemon=True).start()
lock = LeaseLock("job", "default", "replica-0")
election = LeaderElection(Config(lock, 6, 3, 1, onstarted_leading=lead, onstopped_leading=lambda: stops.append(True)))
try:
    election.run()
    end = "run() returns"
except Exception as error:
    end = f"run() raises {type(error).__name__}"
leads.clear()
print(f"{end}; onstopped_leading was called {len(stops)} times; it still leads: {leads.wait(1)}")
PY
answers=$(venv/bin/python lead.py answers)
silent=$(venv/bin/python lead.py silent)
echo "kubernetes 37.0.2: a leader elected by LeaderElection(Config(…)).run() cannot renew its Lease"
echo "Expected: onstopped_leading is called after the renew deadline, whatever the reason."
echo "Seen if the server answers 503:          $answers"
echo "Seen if it does not accept connections: $silent"
echo "With run() in a thread, as beside a server, the old leader works on while another one is elected."
if [ "$answers" != "run() returns; onstopped_leading was called 1 times; it still leads: False" ] ||
    [ "$silent" != "run() raises MaxRetryError; onstopped_leading was called 0 times; it still leads: True" ]; then
    echo "Changed: the callback is called in both cases, or in none."
    exit 1
fi
