#!/usr/bin/env bash
# After `kill -9` of one worker, torchrun's elastic agents (c10d) start new workers, which never form a group again:
# by default they use the agents' store, and fail at the addresses of processes that have ended.
# PyTorch and the libraries that it needs are 3 GB.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cat > train.py <<'PY'
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
while True:
    dist.all_reduce(torch.ones(1))
    with open(sys.argv[1], "a") as file:
        file.write(f"{time.time()} {dist.get_world_size()}\n")
    time.sleep(0.05)
PY
venv/bin/python - <<'PY'
import os
import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

SECONDS = 120


def recovery(name, **environ):
    """Return after how many seconds three workers take steps again, if they do, and the agents' output."""
    folder = Path(name)
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    agents = []
    for number in range(3):
        command = ["venv/bin/torchrun", "--nnodes=1:3", "--nproc-per-node=1", "--max-restarts=100", "--rdzv-backend=c10d"]
        command += [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=job", "--rdzv-conf=last_call_timeout=5"]
        with (folder / f"{number}.log").open("w") as log:
            agents.append(
                subprocess.Popen(
                    [*command, "train.py", str(folder / str(number))],
                    env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **environ},
                    stdout=log, stderr=log, start_new_session=True,
                )
            )

    def trains(since, least=20):
        for number in range(3):
            file = folder / str(number)
            lines = file.read_text().splitlines()[:-1] if file.exists() else []
            if sum(line.endswith(" 3") and float(line.split()[0]) > since for line in lines) < least:
                return False
        return True

    def wait(since):
        while time.time() < since + SECONDS:
            if trains(since):
                return time.time() - since
            time.sleep(0.1)
        return None

    try:
        if wait(time.time()) is None:
            sys.exit("Changed: three agents do not form a first group.")
        worker = int(subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(agents[2].pid)]).split()[0])
        killed = time.time()
        os.kill(worker, signal.SIGKILL)
        return wait(killed), "".join((folder / f"{number}.log").read_text() for number in range(3))
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            try:
                agent.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(agent.pid, signal.SIGKILL)


print(f"torch {version('torch')}: three torchrun agents with one worker each (Gloo); kill -9 of one worker.")
print("Expected: all agents start a worker again, and the three train within seconds.")
shared, log = recovery("shared")
refused = log.count("Connection refused")
print(f"Seen: {'they train again after %.0f s' % shared if shared else 'no step of three workers in %d s' % SECONDS};")
print(f"the output of the new workers has 'Connection refused' {refused} times.")
own, log = recovery("own", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
print(f"With TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 {'they train again after %.0f s' % own if own else 'they do not either'}.")
if shared or not own:
    sys.exit("Changed: it is not the shared store that decides whether they train again.")
PY
