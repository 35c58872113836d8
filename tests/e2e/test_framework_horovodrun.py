"""Runs jobs whose launcher runs the unchanged `horovodrun`, with the agents' `ssh` to workers."""

from __future__ import annotations

import os
import re
import signal
import ssl
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import names

from tests.support.convert import sample
from tests.support.e2e.converted import create_converted, set_environment
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.scaling_jobs import job
from tests.support.horovod_jobs import (
    SCRIPT,
    SECONDS,
    HorovodUser,
    check_account,
    environment,
    horovod_python,
    steps_in,
)

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.embedded_only("the containers use a Python of this machine"),
]

NAME = "horovodrun"
_ANY_CERTIFICATE = ssl.create_default_context()
_ANY_CERTIFICATE.check_hostname = False
_ANY_CERTIFICATE.verify_mode = ssl.CERT_NONE  # the test reads only numbers


def horovodrun_job(folder: Path, *options: str) -> dict[str, Any]:
    python = horovod_python()
    run = [str(Path(python).with_name("horovodrun")), "-np", "2", "--min-np", "1", "--max-np", "4"]
    run += ["--start-timeout", "120"]  # for a machine without a free core
    run += [*options, "--host-discovery-script", "discover_hosts", python, str(SCRIPT)]
    command = ["sh", "-c", f'exec "$@" >> {folder}/launcher.log 2>&1', "sh", *run]
    made = job(NAME, folder, replicas=2, command=command, env=environment(folder))
    spec = made["spec"]
    spec["framework"] = "horovod"
    worker = spec["replicaSpecs"]["worker"]
    worker["drainSeconds"] = (
        120  # enough for a machine without a free core: after half of it nothing waits
    )
    container = worker["template"]["spec"]["containers"][0]
    spec["replicaSpecs"]["launcher"] = {
        "replicas": 1,
        "template": {"spec": {**worker["template"]["spec"]}},
    }
    worker["template"]["spec"]["containers"] = [
        {name: container[name] for name in container if name != "command"}
    ]
    return made


class HorovodrunUser(HorovodUser):
    """Observes the launcher's output."""

    def log(self) -> str:
        path = self.folder / "launcher.log"
        if not path.exists():
            return ""
        return re.sub(r"^\[\d+\]<std(out|err)>:", "", path.read_text(), flags=re.MULTILINE)

    def formed(self) -> list[int]:
        """Return the sizes of the worlds in which rank 0 has begun to train."""
        return [
            int(size) for size in re.findall(r"^world: rank 0 of (\d+)", self.log(), re.MULTILINE)
        ]

    @contextmanager
    def timed(self, what: str, size: int) -> Iterator[None]:
        """Wait for a new world of this size and its next step, and print both durations."""
        begun = time.monotonic()
        before = len(self.formed())
        yield
        self.until(f"a world of {size}", lambda: size in self.formed()[before:], seconds=SECONDS)
        formed = time.monotonic() - begun
        self.trains_with(size)
        stepped = time.monotonic() - begun
        print(f"MEASURED horovodrun: {what}: new world {formed:.1f} s, next step {stepped:.1f} s")

    def measure_calls(self, processes: int) -> None:
        """Print how often the remote shells call the master while some steps are trained."""
        first = self.trains_with(processes)
        begun = time.monotonic()
        before = self.shell_calls()
        last = first
        while last < first + 100:
            last = self.trains_with(processes)
        rate = (self.shell_calls() - before) / (time.monotonic() - begun)
        steps = (last - first) / (time.monotonic() - begun)
        print(
            f"MEASURED horovodrun: {rate / processes:.1f} calls/s for each of {processes}, "
            f"{steps:.1f} lines/s"
        )

    def shell_calls(self) -> float:
        """Return the number of remote shells' calls that the master has answered."""
        master = f"{names.LABEL_JOB_NAME}={NAME},{names.LABEL_ROLE}=master"
        address = self.kubectl(
            "get", "pods", "-l", master, "-o", "jsonpath={.items[0].status.podIP}"
        )
        with urllib.request.urlopen(
            f"https://{address}:{names.HTTP_PORT}/metrics", context=_ANY_CERTIFICATE
        ) as answer:
            metrics = answer.read().decode()
        return sum(map(float, re.findall(r"elasticjob_grpc_calls\S*RemoteShell\S* (\S+)", metrics)))


@pytest.mark.guarantee("stock-horovodrun")
def test_stock_horovodrun_scales_in_training_and_a_killed_master_costs_nothing(
    sandbox: Sandbox, folder: Path
) -> None:
    sandbox.apply(horovodrun_job(folder, "--network-interface", "lo"))
    user = HorovodrunUser(sandbox, NAME, folder)
    user.trains_with(2)

    with user.timed("a worker comes", 3):
        user.request("ScaleOut", "more", count=1)
    user.create("ScaleOut", "more", count=1)
    user.measure_calls(3)

    user.kill_the_master()
    user.trains_with(3)

    leaving = max(user.pods())
    with user.timed("a worker leaves", 2):
        user.request("ScaleIn", "fewer", podNames=[leaving])
    user.create("ScaleIn", "fewer", podNames=[leaving])

    user.kubectl("delete", "pod", max(user.pods()), "--wait=false")  # as a drained node does
    user.trains_with(1)
    user.trains_with(2)
    assert len(re.findall(r"^world: rank 0 of", user.log(), re.MULTILINE)) == 5, user.log()
    ended = set(re.findall(r"exit with status code (\d+)", user.log()))
    assert ended <= {str(128 + signal.SIGABRT)}, (
        "who has left has done so at a commit, as Horovod does it"
    )

    user.finish()
    check_account(user.log(), sizes={1, 2, 3})


@pytest.mark.guarantee("horovodrun-parts-die")
def test_under_horovodrun_dead_processes_and_launchers_are_replaced(
    sandbox: Sandbox, folder: Path
) -> None:
    # The program `horovodrun` itself finds the network interface that they share.
    sandbox.apply(horovodrun_job(folder))
    user = HorovodrunUser(sandbox, NAME, folder)
    user.trains_with(2)

    victim = max(user.pods())
    process = user.process_of(victim)
    with user.timed("kill -9 of a process", 2):  # the other one may train alone in the meantime
        process.send_signal(signal.SIGKILL)
    assert victim not in user.pods()
    assert len(user.pods()) == 2

    worker = min(user.pods())
    process = user.process_of(worker)
    (folder / "launcher.log").rename(folder / "first.log")
    user.kubectl("delete", "pod", f"{NAME}-launcher-0", "--grace-period=0", "--force")
    user.trains_with(2)
    assert steps_in(user.log())[0][0] == 1, (
        "the launcher's death costs the state that is not in a file"
    )
    assert not process.is_running()
    assert worker in user.pods()

    user.finish()
    check_account(user.log(), sizes={2})


def test_a_converted_training_job_of_et_operator_is_scaled_by_its_converted_scalers(
    sandbox: Sandbox, folder: Path
) -> None:
    python = Path(horovod_python())
    (training_job,) = sample("et_operator/training-job.yaml")
    for role in training_job["spec"]["etReplicaSpecs"].values():
        (container,) = role["template"]["spec"]["containers"]
        container.pop("resources", None)  # this test needs no GPU
        variables = {each["name"]: each["value"] for each in environment(folder)}
        set_environment(container, PATH=f"{python.parent}:{os.environ['PATH']}", **variables)
    launcher_role = training_job["spec"]["etReplicaSpecs"]["launcher"]
    (launcher,) = launcher_role["template"]["spec"]["containers"]
    command = launcher["command"]
    command[-1] = re.sub(
        r"python /examples/\S+", f"python {SCRIPT} >> {folder}/launcher.log 2>&1", command[-1]
    )
    scale_in, scale_in_by_name, scale_out = sample("et_operator/scalers.yaml")

    create_converted(sandbox, training_job)
    user = HorovodrunUser(sandbox, training_job["metadata"]["name"], folder)
    user.trains_with(2)
    with user.timed("converted ScaleOut", 3):
        create_converted(sandbox, scale_out)
    user.wait("scaleout/elastic-training-scaleout", ".status.phase", "ScaleSucceeded")
    with user.timed("converted ScaleIn", 2):
        create_converted(sandbox, scale_in)
    user.wait("scalein/scalein-sample", ".status.phase", "ScaleSucceeded")
    with user.timed("converted ScaleIn by name", 1):
        create_converted(sandbox, scale_in_by_name)
    user.until("the named pod's end", lambda: list(user.pods()) == ["elastic-training-worker-0"])

    user.finish()
    check_account(user.log(), sizes={1, 2, 3})
