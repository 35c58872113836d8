#!/usr/bin/env bash
# JAX's process_allgather and broadcast_one_to_all keep 64-bit NumPy values with one process, and cut them to 32 bits with two.
# JAX documents that its own arrays have 32 bits by default; the docstrings of these functions, whose results are NumPy's, do not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat > gather.py <<'PY'
import sys

import jax
import numpy as np
from jax.experimental import multihost_utils

size, rank, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if size > 1:
    jax.distributed.initialize(address, size, rank)
samples = multihost_utils.process_allgather(np.int64(3_000_000_000))
began = multihost_utils.broadcast_one_to_all(np.float64(1764357000.25))
print(samples[0], samples.dtype, f"{began:.2f}", began.dtype)
PY
JAX_PLATFORMS=cpu venv/bin/python - <<'PY'
import socket
import subprocess
import sys
from importlib.metadata import version


def gathered(size):
    """Return what rank 0 of so many processes gathers, as text."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    ranks = [
        subprocess.Popen(
            [sys.executable, "gather.py", str(size), str(rank), address],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(size)
    ]
    outputs = [each.communicate() for each in ranks]
    if any(each.returncode for each in ranks):
        sys.exit("\n".join(errors[-1000:] for _, errors in outputs))
    return outputs[0][0].splitlines()[-1]


one, two = gathered(1), gathered(2)
print(f"jax {version('jax')}: each process gathers the int64 3000000000, and receives the float64 1764357000.25 of rank 0")
print("Expected: the same numbers for any number of processes.")
print(f"Seen with one process:  {one}")
print(f"Seen with two: {two}")
print("No warning appears. A count of tokens becomes negative, and a time is wrong by seconds, when the job grows from one process.")
if (one, two) != ("3000000000 int64 1764357000.25 float64", "-1294967296 int32 1764356992.00 float32"):
    sys.exit("Changed: the type of a gathered value does not depend on the number of processes, or is another one.")
PY
