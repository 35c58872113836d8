#!/usr/bin/env bash
# DLRover's ElasticDistributedSampler keeps its place through one change of the number of processes, and loses it at the second.
# Its state is the steps times the present size; the place that it was given before is not added. The docstring has the formula, no warning.
# The first run downloads 3 GB, as PyTorch's package brings CUDA.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check dlrover==0.6.1 torch==2.15.0 numpy==2.4.6
CUDA_VISIBLE_DEVICES= venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import sys
from collections import Counter
from importlib.metadata import version
from itertools import chain, islice

from dlrover.trainer.torch.elastic.sampler import ElasticDistributedSampler

BATCH = 2
SAMPLES = range(96)


def world(size, state, steps):
    """Train so many steps by so many processes, or the rest of the epoch; return the samples, and a sampler for its state."""
    samplers = [ElasticDistributedSampler(SAMPLES, size, rank, shuffle=False) for rank in range(size)]
    for sampler in samplers:
        if state:
            sampler.load_state_dict(state)
    return list(chain.from_iterable(islice(iter(each), steps and steps * BATCH) for each in samplers)), samplers[0]


def epoch(worlds, counted):
    """Train an epoch in a sequence of worlds, which save the steps of the epoch, or those since the last load."""
    trained, state, done = [], None, 0
    for size, steps in worlds:
        samples, sampler = world(size, state, steps)
        trained += samples
        done += steps or 0
        state = sampler.state_dict(done if counted == "epoch" else steps or 0, BATCH)
    counts = Counter(trained)
    return sum(number > 1 for number in counts.values()), len(SAMPLES) - len(counts)


one = epoch([(4, 6), (2, None)], "epoch")
shrunk = [epoch([(4, 6), (2, 6), (3, None)], counted) for counted in ("epoch", "load")]
grown = [epoch([(2, 6), (4, 6), (3, None)], counted) for counted in ("epoch", "load")]
print(f"dlrover {version('dlrover')}: an epoch of 96 samples in batches of 2; each process trains 6 steps, and the next world loads the state")
print("Expected: every sample is trained once.")
print(f"Seen with 4, then 2 processes: {one[0]} samples are trained twice, {one[1]} never.")
for sizes, results in (("4, 2, 3", shrunk), ("2, 4, 3", grown)):
    for (twice, never), counted in zip(results, ("of the epoch", "since the load"), strict=True):
        print(f"Seen with {sizes} processes, if state_dict() gets the steps {counted}: {twice} are trained twice, {never} never.")
print("It is right for a job that changes its size once in an epoch. After that, keep the number of samples yourself.")
if one != (0, 0) or shrunk != [(24, 0), (48, 0)] or grown != [(0, 24), (24, 0)]:
    sys.exit("Changed: the sampler keeps its place through a second change, or not even through one.")
PY
