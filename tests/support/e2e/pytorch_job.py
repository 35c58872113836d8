"""Defines the PyTorch examples as jobs of the end-to-end tests."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml
from elasticjob_api.meta import Json

from tests.support.e2e.sandbox import EXAMPLES
from tests.support.framework_python import LIBRARY, installed_by

STEPS_PER_EPOCH = 12
BATCH = 125
CHECKPOINT_STEPS = 100
SLOTS = 2
SCRIPT = EXAMPLES / "frameworks" / "pytorch" / "train.py"
RESOURCES = {"requests": {"cpu": "10m", "memory": "64Mi"}}


@cache
def python() -> str:
    """Return the interpreter that has PyTorch: FRAMEWORK_PYTHON, else the system's.

    Skip if there is none.
    """
    program = os.environ.get("FRAMEWORK_PYTHON", "/usr/bin/python3")
    found = (
        subprocess.run([program, "-c", "import torch"], capture_output=True, check=False)
        if program
        else None
    )
    if found is None or found.returncode != 0:
        pytest.skip(
            f"{program} has no PyTorch: make e2e FRAMEWORK=pytorch installs it (Debian's, as root)"
        )
    return program


@cache
def python_since(major: int, minor: int) -> str:
    """Return an interpreter with this PyTorch or later: FRAMEWORK_PYTHON, else of callbacks_env.

    Skip if there is none.
    """
    program = os.environ.get("FRAMEWORK_PYTHON") or installed_by("callbacks_env")
    version = "import torch; print(*torch.__version__.split('.')[:2])"
    done = subprocess.run([program, "-c", version], capture_output=True, text=True, check=False)
    if done.returncode != 0 or tuple(map(int, done.stdout.split())) < (major, minor):
        version = f"{major}.{minor}"
        pytest.skip(f"{program} has no PyTorch {version} or later: run tools/callbacks_env (3 GB)")
    return program


def torchrun(python: str, logs: Path) -> list[str]:
    """Return the command of a Python's torchrun.

    Debian's, of 1.13 with Python 3.11, needs the options of logs.
    """
    return [python, "-m", "torch.distributed.run", "-r", "1", "-t", "1", "--log_dir", str(logs)]


def variables(folder: Path, *, epochs: int) -> dict[str, str]:
    """Return the script's environment variables on this machine."""
    digits = importlib.util.find_spec("sklearn")
    assert digits is not None
    assert digits.origin is not None
    return {
        "EPOCHS": str(epochs),
        "CHECKPOINT_DIR": str(folder),
        "DIGITS": str(Path(digits.origin).parent / "datasets" / "data" / "digits.csv.gz"),
        "PYTHONPATH": LIBRARY,
        "PYTHONUNBUFFERED": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def pytorch_job(name: str, folder: Path, *, epochs: int, command: list[str]) -> Json:
    """Return the job of examples/frameworks/pytorch/NAME.yaml, with its checkpoints in a folder."""
    job: Json = yaml.safe_load((EXAMPLES / "frameworks" / "pytorch" / f"{name}.yaml").read_text())
    job["spec"]["runPolicy"]["cleanPodPolicy"] = "None"  # the test reads its log at the end
    pod = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    (container,) = pod["containers"]
    container["command"] = [*command, str(SCRIPT.with_name(container["command"][-1]))]
    container["resources"] = RESOURCES
    container["env"] = [
        {"name": key, "value": value} for key, value in variables(folder, epochs=epochs).items()
    ]
    container["volumeMounts"] = [{"name": "checkpoints", "mountPath": str(folder)}]
    pod["volumes"] = [{"name": "checkpoints", "hostPath": {"path": str(folder)}}]
    return job


def check_end(log: str, epochs: int) -> None:
    """Check that every step is in the model once, with all samples, and that it has learned."""
    (end,) = re.findall(r"finished: (\d+) steps, (\d+) samples, accuracy ([\d.]+)", log)
    steps = epochs * STEPS_PER_EPOCH
    assert (int(end[0]), int(end[1])) == (steps, steps * BATCH), log
    assert float(end[2]) > 0.9, log
