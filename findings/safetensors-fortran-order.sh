#!/usr/bin/env bash
# safetensors 0.8.0 scrambles NumPy arrays in Fortran order without an error; 0.7.0 saved them correctly.
# The docstring asks for contiguous tensors, which such an array is in NumPy's terms; an issue is open.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check numpy==2.4.6 safetensors==0.7.0
cat > save.py <<'PY'
import sys
from importlib.metadata import version

import numpy as np
from safetensors.numpy import load_file, save_file

saved = np.asfortranarray([[0, 1, 2], [3, 4, 5]], dtype=np.float32)
save_file({"weight": saved}, "model.safetensors")
loaded = load_file("model.safetensors")["weight"]
print(f"Seen: safetensors {version('safetensors')}: saved {saved.tolist()}, loaded {loaded.tolist()}")
equal = np.array_equal(saved, loaded)
if equal != (sys.argv[1] == "equal") or loaded.shape != saved.shape:
    sys.exit("Changed: this version treats arrays in Fortran order otherwise.")
PY
echo "safetensors 0.7.0 and 0.8.0, numpy 2.4.6: save_file and load_file of an array in Fortran order"
echo "Expected: the loaded array equals the saved one, or save_file refuses it."
venv/bin/python save.py equal
venv/bin/pip install -q --no-compile --disable-pip-version-check safetensors==0.8.0
venv/bin/python save.py scrambled
echo "Shape and type are right and no error appears, so only the loss of the resumed training shows it."
