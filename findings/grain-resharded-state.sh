#!/usr/bin/env bash
# Grain's data set iterators take the state of a job of another size, and then leave samples out.
# Its older DataLoader refuses such a state. Grain has a separate elastic iterator; the docstring of set_state has no warning.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check grain==0.2.12
venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import sys
from importlib.metadata import version

import grain
import grain.python


def datasets(workers):
    for rank in range(workers):
        yield iter(grain.MapDataset.range(24).shuffle(seed=1)[rank::workers].to_iter_dataset())


def loaders(workers):
    for rank in range(workers):
        shards = grain.python.ShardOptions(shard_index=rank, shard_count=workers)
        sampler = grain.python.IndexSampler(24, shards, shuffle=True, num_epochs=1, seed=1)
        source = grain.python.RangeDataSource(0, 24, 1)
        yield iter(grain.python.DataLoader(data_source=source, sampler=sampler, worker_count=0))


def train(kind):
    """Take four samples on each of two workers, and continue with three workers from the state."""
    before = list(kind(2))
    trained = [next(iterator) for iterator in before for _ in range(4)]
    after = list(kind(3))
    for iterator in after:
        iterator.set_state(before[0].get_state())
    return trained + [sample for iterator in after for sample in iterator]


trained = train(datasets)
missing = sorted(set(range(24)) - set(trained))
try:
    train(loaders)
    refusal = "nothing"
except ValueError as error:
    refusal = str(error).splitlines()[0]
print(f"grain {version('grain')}: a state saved with two workers is restored with three, in an epoch of 24 samples")
print("Expected: the sample positions are converted, or the state is refused.")
print(f"Seen: MapDataset: {len(trained)} of 24 samples are trained, without an error; {missing} are never seen.")
print(f"Seen: DataLoader raises: {refusal}")
print("The state is a position in the worker's own slice, and the slices change with the number of workers.")
if missing == [] or not refusal.startswith("Sampler in checkpoint"):
    sys.exit("Changed: an iterator notices that the number of shards is another one, or the DataLoader does not.")
PY
