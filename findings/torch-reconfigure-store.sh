#!/usr/bin/env bash
# A process group of Gloo that was made with enable_reconfigure can leave dead members out, by handles that its members
# exchange as they like. But it keeps the store of its first start: if that ends, no new group can be formed.
# PyTorch and the libraries that it needs are 3 GB.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cat > member.py <<'PY'
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

case, port, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
served_by = {"store of member 2 ends": 2, "store of member 0 stays": 0}[case]
store = dist.TCPStore("127.0.0.1", port, is_master=rank == served_by, wait_for_workers=False, timeout=timedelta(seconds=60))
dist.init_process_group("gloo", store=store, rank=rank, world_size=3, enable_reconfigure=True, timeout=timedelta(seconds=20))


def meet(number, ranks):
    """Exchange the handles by files, and form a group."""
    mine = Path(f"{case}-{number}-{rank}")
    mine.with_suffix(".new").write_text(dist.distributed_c10d._get_reconfigure_handle())
    mine.with_suffix(".new").rename(mine)
    files = [Path(f"{case}-{number}-{other}") for other in ranks]
    while not all(file.exists() for file in files):
        time.sleep(0.01)
    handles = [file.read_text() for file in files]
    dist.distributed_c10d._reconfigure(uuid=number, handles=handles, timeout=timedelta(seconds=10)).wait()
    total = torch.ones(1)
    dist.all_reduce(total)
    return int(total)


assert meet(1, [0, 1, 2]) == 3
Path(f"{case}-met-{rank}").touch()
if rank == 2:
    while not all(Path(f"{case}-met-{other}").exists() for other in (0, 1)):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
while not Path(f"{case}-dead").exists():
    time.sleep(0.01)
try:
    Path(f"{case}-seen-{rank}").write_text(f"an all-reduce of {meet(2, [0, 1])}")
except RuntimeError as error:
    Path(f"{case}-seen-{rank}").write_text(f"{type(error).__name__}: {str(error).splitlines()[0][:80]}")
while not all(Path(f"{case}-seen-{other}").exists() for other in (0, 1)):
    time.sleep(0.01)
PY
venv/bin/python - <<'PY'
import os
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path


def seen(case):
    """Return what the two survivors of three have seen in their new group."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = ["venv/bin/python", "member.py", case, port]
    processes = [
        subprocess.Popen([*command, str(rank)], env=environ, stderr=subprocess.DEVNULL) for rank in range(3)
    ]
    processes[2].wait(300)
    Path(f"{case}-dead").touch()
    for each in processes[:2]:
        each.wait(300)
    return [Path(f"{case}-seen-{rank}").read_text() for rank in (0, 1)]


print(f"torch {version('torch')}, Gloo, enable_reconfigure: one of three processes dies (SIGKILL); the other two exchange new")
print("handles by files, and call _reconfigure.")
print("Expected: they form a group of two, whichever process has died.")
gone = seen("store of member 2 ends")
stays = seen("store of member 0 stays")
print(f"Seen if the dead one had served the store of init_process_group: {gone}")
print(f"Seen if a survivor had served it: {stays}")
if stays != ["an all-reduce of 2"] * 2 or any("all-reduce" in each for each in gone):
    sys.exit("Changed: the store of the first start no longer decides whether a group can be formed again.")
PY
