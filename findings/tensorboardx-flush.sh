#!/usr/bin/env bash
# SummaryWriter.flush() of tensorboardX leaves the newest values in memory.
# Its docstring promises that all pending events are written.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check tensorboardX==2.6.5 tensorboard==2.21.0 'setuptools<81'
venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import os
import signal
import sys
import time
from importlib.metadata import version

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX import SummaryWriter

process = os.fork()
if process == 0:
    for run in range(20):
        writer = SummaryWriter(f"run{run}")
        for step in range(10):
            writer.add_scalar("loss", 1 / (step + 1), step)
        writer.flush()
    time.sleep(3)  # more than an asynchronous write would need
    os.kill(os.getpid(), signal.SIGKILL)  # the end of the grace period
os.waitpid(process, 0)


def count(run):
    accumulator = EventAccumulator(run)
    accumulator.Reload()
    return len(accumulator.Scalars("loss")) if "loss" in accumulator.Tags()["scalars"] else 0


counts = [count(f"run{run}") for run in range(20)]
print(f"tensorboardX {version('tensorboardX')}: 20 writers add 10 values each, flush(); three seconds later SIGKILL")
print("Expected: each event file has its 10 values.")
print(f"Seen: {counts.count(10)} of 20 files are complete; they have {counts} values.")
print("flush() does not wait for the queue before the file. A worker that flushes when it is asked to stop")
print("loses the end of its curve; close() writes everything.")
if counts.count(10) == 20:
    sys.exit("Changed: flush() writes all pending values.")
PY
