"""Runs end-to-end tests on a cluster with a node: the embedded one, or that of `--kubeconfig`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.e2e.sandbox import Sandbox, new_sandbox
from tests.support.e2e.target_cluster import TargetCluster, existing_cluster


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> TargetCluster:
    if kubeconfig := request.config.getoption("--kubeconfig"):
        return existing_cluster(Path(kubeconfig).resolve())
    embedded = request.getfixturevalue("node_cluster")
    return TargetCluster(embedded.kubeconfig, embedded.bin)


@pytest.fixture
async def sandbox(cluster: TargetCluster) -> AsyncIterator[Sandbox]:
    """Create a namespace with an operator that the test may kill."""
    async with new_sandbox(cluster) as made:
        yield made


@pytest.fixture(scope="session")
def shared_folder(cluster: TargetCluster) -> None:
    """Skip tests that share files with their pods if the pods are on other machines."""
    if cluster.real and not cluster.is_here():
        pytest.skip(
            "this test shares a folder with its pods: the cluster's only node must be this machine"
        )


@pytest.fixture
def folder(shared_folder: None, tmp_path: Path) -> Path:
    """Return a folder that the containers of the test's pods may mount and write to as any user."""
    tmp_path.chmod(0o777)
    return tmp_path


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests for the other kind of cluster, with the reason that the mark gives."""
    real = item.config.getoption("--kubeconfig") is not None
    if real and (mark := item.get_closest_marker("embedded_only")):
        pytest.skip(f"embedded cluster only: {mark.args[0]}")
    if not real and item.get_closest_marker("real_node"):
        pytest.skip("needs a node with a kubelet: make e2e KUBECONFIG=...")
