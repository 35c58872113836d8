#!/usr/bin/env bash
# With torchft's DistributedDataParallel (Gloo) the replicas that wait in a collective for one that dies end, too:
# with an AssertionError. Where the death falls between two collectives they train on.
# PyTorch and the libraries that it needs are 3 GB.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check torch==2.15.0 torchft==0.2.0 numpy==2.4.6
cat > train.py <<'PY'
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from torchft.ddp import PureDistributedDataParallel

kind, lighthouse, port, name = sys.argv[1:]
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK="0", WORLD_SIZE="1", TORCHFT_LIGHTHOUSE=lighthouse)
store = torch.distributed.TCPStore("127.0.0.1", int(port), is_master=True, wait_for_workers=False)
net = torch.nn.Linear(16, 4)
sgd = torch.optim.SGD(net.parameters(), lr=0.01)
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=10)),
    load_state_dict=lambda saved: (net.load_state_dict(saved["net"]), sgd.load_state_dict(saved["sgd"])),
    state_dict=lambda: {"net": net.state_dict(), "sgd": sgd.state_dict()},
    min_replica_size=1,
    replica_id=name,
)
model = {"DDP": DistributedDataParallel, "Pure": PureDistributedDataParallel}[kind](manager, net)
optimizer = Optimizer(manager, sgd)
while True:
    optimizer.zero_grad()
    loss = model(torch.randn(8, 16)).sum()
    if name == "r2_" and Path(f"{kind}-dies").exists():
        manager.wait_quorum()
        time.sleep(1)  # the others are in the collective of this step
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
    optimizer.step()
    print("step", manager.current_step(), manager.num_participants(), flush=True)
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


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def survivors(kind):
    """Kill one of three replicas; return how many of the others still take steps, and their output."""
    address = f"127.0.0.1:{free_port()}"
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    lighthouse = ["venv/bin/torchft_lighthouse", "--bind", address, "--min_replicas", "1", "--join_timeout_ms", "1000"]
    processes = [subprocess.Popen(lighthouse, stderr=subprocess.DEVNULL)]
    logs = [Path(f"{kind}{number}.log") for number in range(3)]
    try:
        for number, log in enumerate(logs):
            command = ["venv/bin/python", "train.py", kind, f"http://{address}", str(free_port()), f"r{number}_"]
            with log.open("w") as output:
                processes.append(subprocess.Popen(command, env=environ, stdout=output, stderr=output))

        def steps(log, size):
            return sum(line.startswith("step") and line.endswith(f" {size}") for line in log.read_text().splitlines())

        end = time.monotonic() + 300
        while min(steps(log, 3) for log in logs) < 20:
            if time.monotonic() > end:
                sys.exit("Changed: three replicas do not train together.")
            time.sleep(0.1)
        Path(f"{kind}-dies").touch()
        processes[3].wait(60)
        before = [steps(log, 2) for log in logs]
        end = time.monotonic() + 60
        left = [0, 1]
        while time.monotonic() < end and not all(steps(logs[number], 2) >= before[number] + 20 for number in left):
            left = [number for number in left if processes[1 + number].poll() is None]
            time.sleep(0.1)
        return len(left), "".join(log.read_text() for log in logs[:2])
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


print(f"torchft {version('torchft')}, torch {version('torch')}: three replicas train (Gloo); one dies (SIGKILL) while the others wait for it in a collective.")
print("Expected: the other two lose a step and train on.")
left, output = survivors("DDP")
last = [line for line in output.splitlines() if line.startswith("AssertionError")]
print(f"Seen with torchft.DistributedDataParallel: {left} of 2 survivors train on; {len(last)} ended with an AssertionError")
print("in the wrapper's communication hook, which expects the result of a collective that has failed.")
pure, _ = survivors("Pure")
print(f"With PureDistributedDataParallel (a collective for each parameter) {pure} of 2 train on.")
if left or not last or pure != 2:
    sys.exit("Changed: the wrapper no longer decides whether the survivors train on.")
PY
