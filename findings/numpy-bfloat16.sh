#!/usr/bin/env bash
# NumPy saves a bfloat16 array without complaint, and loads it as opaque bytes.
# An open issue of ml_dtypes describes it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check numpy==2.4.6 ml_dtypes==0.6.0
venv/bin/python - <<'PY'
import sys
from importlib.metadata import version

import ml_dtypes
import numpy as np

saved = np.arange(3).astype(ml_dtypes.bfloat16)  # what np.asarray of a JAX bfloat16 array is
np.savez("checkpoint.npz", weight=saved)
loaded = np.load("checkpoint.npz")["weight"]
try:
    loaded.astype(np.float32)
    conversion = "works"
except ValueError as error:
    conversion = f"ValueError: {error}"
recovered = loaded.view(ml_dtypes.bfloat16)
print(f"numpy {version('numpy')}, ml_dtypes {version('ml_dtypes')}: np.savez and np.load of JAX's bfloat16")
print("Expected: the array comes back as bfloat16 if ml_dtypes is imported; otherwise savez refuses it.")
print(f"Seen: saved {saved.dtype}, loaded {loaded.dtype}; astype(float32): {conversion}")
print("The save succeeds; only a resume fails. The values are intact: .view(ml_dtypes.bfloat16) recovers them.")
if loaded.dtype.str != "|V2" or conversion == "works" or not np.array_equal(recovered, saved):
    sys.exit("Changed: bfloat16 arrays are saved or loaded otherwise.")
PY
