"""Upgrades to another version while a job trains: first operator and definitions, then the master.

The workers' agents stay as they are. A new master therefore speaks to agents of the earlier
version, from state that the earlier master has stored. The embedded cluster's node knows no images,
so there only operator and definitions change.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from elasticjob_api import names

from tests.conftest import REPOSITORY, own_cluster
from tests.support.e2e import images
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.real_node import container, wait_for_progress
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.scaling_jobs import job
from tests.support.e2e.target_cluster import TargetCluster, existing_cluster

pytestmark = pytest.mark.thorough

EARLIER = "adb2c59"
"""The commit of the earlier version; docs/upgrade.md lists what may change since."""


@pytest.fixture(scope="session")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TargetCluster]:
    """Run a separate embedded cluster.

    Definitions of an earlier version would remove fields from other tests' objects.
    """
    if kubeconfig := request.config.getoption("--kubeconfig"):
        yield existing_cluster(Path(kubeconfig).resolve())
        return
    with own_cluster(tmp_path_factory, capacity={"cpu": "64"}) as upgraded:
        yield TargetCluster(upgraded.kubeconfig, upgraded.bin)


@pytest.fixture(scope="session")
def earlier(cluster: TargetCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the sources of the earlier version."""
    if cluster.real and not images.EARLIER_MASTER:
        pytest.skip(
            "ELASTICJOB_EARLIER_MASTER_IMAGE must name a master's image of an earlier version"
        )
    folder = tmp_path_factory.mktemp("earlier")
    archive = subprocess.run(
        ["git", "-C", REPOSITORY, "archive", EARLIER], capture_output=True, check=False
    )
    if archive.returncode != 0:
        pytest.skip(f"this is not a clone with commit {EARLIER}: {archive.stderr.decode()}")
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return folder


@pytest.mark.guarantee("upgrade-while-jobs-run")
def test_operator_definitions_and_master_are_upgraded_without_disturbing_workers(
    sandbox: Sandbox, folder: Path, earlier: Path
) -> None:
    user = KubectlUser(sandbox, "kept", folder)
    training = job("kept", folder, replicas=2, image=images.EARLIER_MASTER or "none")
    training["spec"]["runPolicy"]["startPolicy"] = (
        "AllReady"  # the first world has two members, however late one of them is
    )
    with without_operator(sandbox):
        define(sandbox, earlier / "crds")
        with operator_of(earlier, sandbox):
            sandbox.apply(training)
            user.runs_with(2)
            done = user.create("ScaleOut", "before", count=1)
            user.runs_with(3)
            before = user.pods()
        define(sandbox, REPOSITORY / "crds")
        wait_for_progress(user)  # while no operator could help it
    user.create("ScaleOut", "after", count=1)
    user.runs_with(4)
    assert before.items() < user.pods().items(), "a worker was replaced"
    assert user.status("scaleout/before") == done
    assert sorted(plan["status"]["phase"] for plan in user.items("sp")) == [
        "Succeeded",
        "Succeeded",
    ]
    # One world for each requested size: the upgrade has cost none.
    assert [size for size, _ in user.worlds()] == [2, 3, 4]
    if sandbox.cluster.real:
        replace_the_master(user)
    restarts = {name: container(user, name)["restartCount"] for name in user.pods()}
    assert restarts == dict.fromkeys(user.pods(), 0)
    user.finish()


def replace_the_master(user: KubectlUser) -> None:
    """Let a master of this version continue from the earlier one's state, with its agents."""
    workers = user.pods()
    master = names.master_service(user.job)
    assert image(user, master) == images.EARLIER_MASTER
    step = user.status()["progress"]["step"]
    user.kubectl("delete", "pod", master)
    successor = names.master_pod(user.job, 1)
    user.kubectl("wait", "--for=create", f"pod/{successor}", "--timeout=60s")
    user.wait(f"pod/{successor}", ".status.phase", "Running")
    assert image(user, successor) == images.MASTER
    wait_for_progress(user)
    assert user.status()["progress"]["step"] > step
    assert (user.pods(), [size for size, _ in user.worlds()]) == (workers, [2, 3, 4])
    user.create("ScaleIn", "fewer", count=1)
    user.runs_with(3)
    assert [size for size, _ in user.worlds()] == [2, 3, 4, 3]
    assert user.worlds()[-1][1] > step, "the workers had no time to save their step"


@contextmanager
def without_operator(sandbox: Sandbox) -> Iterator[None]:
    """Run no operator of this version while in the block."""
    sandbox.operator.stop()
    try:
        yield
    finally:
        define(sandbox, REPOSITORY / "crds")
        sandbox.operator.start()


def define(sandbox: Sandbox, folder: Path) -> None:
    """Apply the definitions of a version, as `make install` does."""
    sandbox.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(folder))


@contextmanager
def operator_of(sources: Path, sandbox: Sandbox) -> Iterator[None]:
    """Run the operator of other sources for the test's namespace."""
    paths = os.pathsep.join(str(sources / part) for part in ("operator", "proto", "kube"))
    environ = {**os.environ, "KUBECONFIG": str(sandbox.cluster.kubeconfig), "PYTHONPATH": paths}
    command = [sys.executable, "-m", "elasticjob_operator.main", "--namespace", sandbox.namespace]
    command += ["--master-image", images.EARLIER_MASTER or "none"]
    process = subprocess.Popen(command, env=environ, cwd=sources)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(timeout=30) == 0


def image(user: KubectlUser, pod: str) -> str:
    """Return the image of a pod's container."""
    found: str = user.get(f"pod/{pod}")["spec"]["containers"][0]["image"]
    return found
