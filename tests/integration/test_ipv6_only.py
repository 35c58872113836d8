"""Runs masters and agents in a network without IPv4, as clusters with IPv6 only have."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob_api import names

from tests.support.e2e.pytorch_job import torchrun
from tests.support.framework_python import checkout
from tests.support.ipv6_network import ipv6_only
from tests.support.local_job import LocalJob, start_cold
from tests.support.thorough import some_of

NETWORK = "fd00::"
ADDRESSES = {f"{NETWORK}10", f"{NETWORK}11"}
ENVIRONMENT = """
import json, os
print("world", json.dumps(dict(os.environ)), flush=True)
"""
JAX = """
import os
import jax

# Gloo would use the address of the host's name, which is not this network's.
jax.config.update("jax_cpu_collectives_implementation", None)
jax.distributed.initialize(num_processes=2, process_id=int(os.environ["JAX_PROCESS_ID"]))
print("sum", len(jax.devices()), flush=True)
"""
PYTORCH = """
import torch
import torch.distributed

torch.distributed.init_process_group("gloo")
total = torch.tensor(torch.distributed.get_rank() + 1)
torch.distributed.all_reduce(total)
print("sum", total.item(), flush=True)
torch.distributed.destroy_process_group()
"""
SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[LocalJob]:
    """Return a job in a network of its own."""
    with ipv6_only(f"{NETWORK}1", *ADDRESSES):
        job = LocalJob(tmp_path, NETWORK.removesuffix(":"), start_cold)
        try:
            yield job
        finally:
            job.end()


def run(job: LocalJob, text: str, *program: str, **environment: str) -> list[str]:
    """Run a script in a world of two, to its end; return its lines in both processes."""
    script = job.folder / "train.py"
    script.write_text(text)
    job.start_master(2)
    command = (*program, str(script))
    agents = [job.start_agent(index, *command, **environment) for index in range(2)]
    job.wait("the agents end", lambda: all(agent.poll() is not None for agent in agents))
    assert [agent.returncode for agent in agents] == [0, 0], job.log()
    return re.findall(r"^(?:\[default0\]:)?(?:world|sum) (.*)$", job.log(), re.MULTILINE)


@pytest.mark.guarantee("ipv6-only")
@pytest.mark.parametrize("framework", some_of(["pytorch", "jax", "tensorflow"], first=1))
def test_addresses_with_a_port_have_brackets(job: LocalJob, framework: str) -> None:
    job.framework = framework
    worlds = [json.loads(line) for line in run(job, ENVIRONMENT, sys.executable)]
    assert len(worlds) == 2, job.log()
    for variables in worlds:
        first = variables[names.ENV_COORDINATOR_HOST]
        assert set(variables[names.hosts_env("worker")].split(",")) == ADDRESSES
        assert first in ADDRESSES
        if framework == "pytorch":
            assert variables["MASTER_ADDR"] == first
            assert variables["PET_RDZV_ENDPOINT"] == f"[{first}]:29500"
        elif framework == "jax":
            assert variables["JAX_COORDINATOR_ADDRESS"] == f"[{first}]:8476"
        else:
            workers = json.loads(variables["TF_CONFIG"])["cluster"]["worker"]
            assert sorted(workers) == [f"[{NETWORK}10]:12300", f"[{NETWORK}11]:12301"]


@pytest.mark.guarantee("ipv6-only")
def test_jax_trains_in_a_world_of_two(job: LocalJob) -> None:
    assert run(job, JAX, sys.executable) == ["2", "2"], job.log()


@pytest.mark.guarantee("ipv6-only")
@pytest.mark.thorough
@pytest.mark.parametrize("launcher", ["alone", "torchrun"])
def test_pytorch_trains_in_a_world_of_two(job: LocalJob, launcher: str, tmp_path: Path) -> None:
    if subprocess.run([SYSTEM_PYTHON, "-c", "import torch"], capture_output=True).returncode:
        pytest.skip("run tools/pytorch_env once")
    job.framework = "pytorch"
    paths = {"PYTHONPATH": checkout("library", "api"), "GLOO_SOCKET_IFNAME": "lo"}
    command = [SYSTEM_PYTHON]
    if launcher == "torchrun":
        command = torchrun(SYSTEM_PYTHON, tmp_path / "torchrun")
    assert run(job, PYTORCH, *command, **paths) == ["3", "3"], job.log()
