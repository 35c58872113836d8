#!/usr/bin/env bash
# Flax's from_bytes restores an array of any shape and type into a target of another one, without an error.
# Its keys are compared: the file must have those of the target. The documentation says that the target gives the structure.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check flax==0.12.8
venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
from flax import linen, serialization


def dense(inputs):
    return linen.Dense(3).init(jax.random.key(0), jnp.ones((1, inputs)))


saved = serialization.to_bytes(dense(7))
restored = serialization.from_bytes(dense(2), saved)
kernel = restored["params"]["kernel"].shape
half = {"weight": jnp.zeros(3, jnp.bfloat16)}
kind = serialization.from_bytes(half, serialization.to_bytes({"weight": jnp.ones(3, jnp.float32)}))["weight"].dtype
try:
    serialization.from_bytes({"params": {"scale": jnp.zeros(3)}}, saved)
    refusal = "nothing"
except ValueError as error:
    refusal = str(error).split(":")[0]
print(f"flax {version('flax')}: parameters of Dense(3) for 7 inputs are read with those for 2 inputs as the target")
print("Expected: the shape (7, 3) is refused, as by PyTorch's load_state_dict.")
print(f"Seen: the kernel has the shape {kernel}; a bfloat16 target gets {kind}.")
print(f"Seen: a target with another key raises: {refusal}")
print("A job that continues with another model, or another optimizer's state, computes with what the file has.")
if kernel != (7, 3) or str(kind) != "float32" or refusal == "nothing":
    sys.exit("Changed: from_bytes compares shapes or types, or does not compare keys.")
PY
