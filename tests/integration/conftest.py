"""Integration tests talk to a control plane without a node."""

import pytest
from elasticjob_localcluster.cluster import Cluster


@pytest.fixture(scope="session")
def cluster(control_plane: Cluster) -> Cluster:
    return control_plane
