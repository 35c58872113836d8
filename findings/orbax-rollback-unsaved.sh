#!/usr/bin/env bash
# After a rollback Orbax's CheckpointManager saves nothing until training is past the newest step of the run that was left.
# save() answers False, as between two intervals. A maintainer says so in an issue; the docstrings do not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check orbax-checkpoint==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu venv/bin/python - 2> log <<'PY' || { cat log; exit 1; }
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp


def train(steps, run, begin=None):
    """Continue from a step with another manager, as a restarted process does; return what restore found and what save said."""
    with ocp.CheckpointManager(Path("checkpoints").absolute()) as manager:
        begin = begin or manager.latest_step()
        found = str(manager.restore(begin, args=ocp.args.StandardRestore())["run"]) if begin else ""
        saved = [manager.save(step, args=ocp.args.StandardSave({"run": np.array(run)})) for step in steps]
    return found, saved


first = train((100, 200, 300), run=1)
second = train((150, 200, 250, 300), run=2, begin=100)
restored = train((), run=3)[0]
print(f"orbax-checkpoint {version('orbax-checkpoint')}: a run saves steps 100 to 300. Its loss diverges; the next run restores step 100, and saves four times.")
print("Expected: the checkpoints of the second run are written, or save() raises an error.")
print(f"Seen: save() returned {second[1]} for the steps 150, 200, 250 and 300; nothing is printed.")
print(f"Seen: after a restart the latest step is one of run {restored}.")
print("The second run is lost with its process, and the job continues with the diverged weights. Delete the later steps after a rollback.")
if first[1] != [True] * 3 or second[1] != [False] * 4 or restored != "1":
    sys.exit("Changed: a step below the latest one is saved, or refused aloud.")
PY
