#!/usr/bin/env bash
# A running TensorBoard drops what a rank writes once another rank has begun a newer file in its folder.
# The reader logs it, and its source says that a folder has one writer at a time.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check tensorboard==2.21.0
venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import sys
import time
from importlib.metadata import version

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter


def write(writer, tag, step):
    value = Summary.Value(tag=tag, simple_value=1)
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
    writer.flush()


def steps(reader):
    reader.Reload()
    return {tag: [event.step for event in reader.Scalars(tag)] for tag in sorted(reader.Tags()["scalars"])}


leader = EventFileWriter("run")
write(leader, "loss", 0)
time.sleep(1.1)  # the names of the files begin with the second
joined = EventFileWriter("run")  # of a rank that joins later
write(joined, "memory", 0)
reader = EventAccumulator("run")  # what TensorBoard uses for a run
reader.Reload()
for step in range(1, 5):
    write(leader, "loss", step)
running = steps(reader)
restarted = steps(EventAccumulator("run"))
print(f"tensorboard {version('tensorboard')}: rank 0 writes on after a later rank has written to the same folder")
print("Expected: each reload shows the new values of both files.")
print(f"Seen: the running reader has {running}, a newly started one {restarted}.")
print("So curves stop when the world grows, and are complete after a restart of TensorBoard. Give each writer a folder.")
if running["loss"] != [0] or restarted["loss"] != [0, 1, 2, 3, 4]:
    sys.exit("Changed: the reader follows several growing files of a folder.")
PY
