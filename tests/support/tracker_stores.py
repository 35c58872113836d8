"""Prints what a tracker's store has, as JSON: the step and the value of each metric, by run.

    tracker_stores.py mlflow|tensorboard|wandb

It runs in the Python of tools/trackers_env, with the environment of the job.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Runs = dict[str, dict[str, list[tuple[int, float]]]]


def read_mlflow() -> Runs:
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name(os.environ["MLFLOW_EXPERIMENT_NAME"])
    found: Runs = {}
    for run in client.search_runs([experiment.experiment_id]) if experiment else ():
        found[run.info.run_id] = {
            name: [
                (each.step, each.value) for each in client.get_metric_history(run.info.run_id, name)
            ]
            for name in run.data.metrics
        }
    return found


def read_tensorboard() -> Runs:
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    events = EventMultiplexer(size_guidance={"scalars": 0})
    events.AddRunsFromDirectory(os.environ["ELASTICJOB_TRACKER_FOLDER"])
    events.Reload()
    return {
        run: {
            tag: [(each.step, each.value) for each in events.Scalars(run, tag)]
            for tag in kinds["scalars"]
        }
        for run, kinds in events.Runs().items()
    }


def read_wandb() -> Runs:
    """Return the offline runs, which W&B merges by their ids when they are synchronized."""
    from wandb.proto.wandb_internal_pb2 import Record

    found: Runs = {}
    for path in sorted(Path(os.environ["WANDB_DIR"], "wandb").glob("offline-run-*/run-*.wandb")):
        values: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        for data in _records(path.read_bytes()):
            record: Any = Record()
            record.ParseFromString(data)
            for item in record.history.item:
                name = item.key or "/".join(item.nested_key)
                if not name.startswith("_"):
                    values[name].append(
                        (record.history.step.num, float(json.loads(item.value_json)))
                    )
        found[f"{path.stem.removeprefix('run-')} {path.parent.name}"] = values
    return found


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the complete records of a log of LevelDB's format, in blocks of 32 KiB."""
    position = 7
    record = b""
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        record += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # complete in this part, or its last part
            yield record
            record = b""


if __name__ == "__main__":
    readers = {"mlflow": read_mlflow, "tensorboard": read_tensorboard, "wandb": read_wandb}
    print(json.dumps(readers[sys.argv[1]]()))
