"""Sets up a control plane without a node, or a master or agent process without a cluster."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
import pytest_asyncio
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support import agent_process, master_on_kubernetes
from tests.support.fake_master import FakeMaster
from tests.support.master_process import STANDALONE, Master, run_master
from tests.support.standby_programs import Program


@pytest.fixture(scope="session")
def cluster(control_plane: Cluster) -> Cluster:
    return control_plane


@pytest_asyncio.fixture
async def master(tmp_path: Path) -> AsyncIterator[Master]:
    """Run a master without Kubernetes whose first world has two members."""
    async with run_master(tmp_path, *STANDALONE) as running:
        yield running


@pytest_asyncio.fixture
async def channel(master: Master) -> AsyncIterator[grpc.aio.Channel]:
    """Open a channel to the master that shows the job's token."""
    async with master.channel() as open_channel:
        yield open_channel


@pytest_asyncio.fixture
async def setting(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> master_on_kubernetes.Setting:
    """Create a job in a namespace, and an account for its master."""
    return await master_on_kubernetes.prepare(cluster, kube, namespace, tmp_path)


@pytest_asyncio.fixture
async def fake_master(network: str) -> AsyncIterator[FakeMaster]:
    """Run a fake master whose commands the test sends by hand."""
    fake = FakeMaster(f"{network}.1")  # type: ignore[abstract]
    await fake.start()
    yield fake
    await fake.stop()


@pytest_asyncio.fixture
async def run(fake_master: FakeMaster, tmp_path: Path) -> AsyncIterator[agent_process.Run]:
    """Return a function that starts agents of the fake master."""
    async with agent_process.agents(fake_master.host, tmp_path) as start:
        yield start


@pytest.fixture
def program(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: agent_process.Run,
    fake_master: FakeMaster,
) -> Program:
    """Go to a folder for a program and its packages."""
    monkeypatch.chdir(tmp_path)
    return Program(tmp_path, run, fake_master)
