"""Runs `elasticjob doctor --gpu` on this machine, as on one without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.e2e import pytorch_job
from tests.support.programs import ran


def doctor(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "elasticjob_cli.main", "doctor", "--gpu", "--python", python)
    return ran(*command, cwd=folder, CUDA_VISIBLE_DEVICES="")


@pytest.mark.thorough
def test_without_a_gpu_the_doctor_checks_the_same_on_the_cpu_and_says_so(tmp_path: Path) -> None:
    done = doctor(tmp_path, pytorch_job.python())
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    found = json.loads((tmp_path / "gpu-check.json").read_text())
    assert all(each["check"] in done.stdout for each in found), said
    by_name = {each["check"]: each["value"] for each in found}
    assert by_name["device"].startswith("CPU mode: PyTorch finds no GPU"), said
    assert "training.py" in by_name["run -n 1: stack"], said
    assert by_name["run -n 1: memory in use"] > 0, said
    assert by_name["GPUs opened in standby"] == 0, said
    measured = [
        *("saved into memory (torch.save)", "a bare copy into memory"),
        *("loaded back (torch.load)", "a bare copy back", "run -n 1: start to first step"),
        *("kill to next step, cold", "kill to next step, from standby"),
    ]
    assert all(by_name[name] > 0 for name in measured), said


def test_the_doctor_asks_for_a_python_with_pytorch(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    done = doctor(tmp_path, str(missing))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {missing} has no PyTorch")
    assert "name another Python with --python" in done.stderr
    assert not (tmp_path / "gpu-check.json").exists()
