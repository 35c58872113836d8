#!/usr/bin/env bash
# PyTorch's ElasticDistributedSampler takes its start_index for a place in the data set, not in the epoch's random order.
# A resume inside of an epoch repeats samples and leaves others out; so do all later epochs. A pull request was closed; the docstring says
# "index of the dataset". The first run downloads 3 GB, as PyTorch's package brings CUDA.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check torch==2.15.0 numpy==2.4.6
CUDA_VISIBLE_DEVICES= venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import sys
from collections import Counter
from itertools import islice

import torch
from torch.distributed.elastic.utils.data import ElasticDistributedSampler

SAMPLES = range(1200)


def epoch(size, start, number, each=None):
    """Return the samples that so many processes train from a start_index on: all of them, or so many by each process."""
    trained = []
    for rank in range(size):
        sampler = ElasticDistributedSampler(SAMPLES, size, rank, start_index=start)
        sampler.set_epoch(number)
        trained += islice(iter(sampler), each)
    return trained


def account(trained):
    counts = Counter(trained)
    return sum(times > 1 for times in counts.values()), len(SAMPLES) - len(counts)


before = epoch(4, 0, number=0, each=150)  # 600 samples, then a process is lost
same, fewer = (account(before + epoch(size, len(before), number=0)) for size in (4, 3))
later = account(epoch(3, len(before), number=1))
print(f"torch {torch.__version__}: four processes train half of 1200 samples; samplers with start_index=600 train the rest of the epoch")
print("Expected: every sample is trained once.")
for text, (twice, never) in (("four", same), ("three", fewer)):
    print(f"Seen with {text} processes: {twice} samples are trained twice, {never} never.")
print(f"Seen in the next epoch, after set_epoch(1): {later[1]} samples are not trained, those before the index.")
print("The first half was a random one, the rest is the second half of the data set. It has no argument to switch shuffling off.")
if same[0] != same[1] or not 200 < same[1] < 400 or fewer != same or later != (0, 600):
    sys.exit("Changed: start_index is a place in the epoch's order, or another part is trained.")
PY
