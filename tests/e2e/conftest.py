"""End-to-end tests run on a cluster with a node: the embedded one."""

from collections.abc import AsyncIterator

import pytest
from elasticjob_cli.dev.cluster import Cluster

from tests.e2e.stage import Stage, on_stage


@pytest.fixture(scope="session")
def cluster(node_cluster: Cluster) -> Cluster:
    return node_cluster


@pytest.fixture
async def stage(cluster: Cluster) -> AsyncIterator[Stage]:
    """A namespace of its own, with an operator that the test may kill."""
    async with on_stage(cluster) as made:
        yield made
