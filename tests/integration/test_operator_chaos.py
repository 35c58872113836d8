"""Disturbs the operator and its API server connection: every request is executed exactly once."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from elasticjob_api import names
from elasticjob_kube.errors import NotFound
from elasticjob_kube.resources import LEASES
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.chaos_proxy import REQUESTS, WATCHES, ChaosProxy, When, WriteRequest, chaos_proxy
from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import end_operator, start_operator
from tests.support.random_requests import Series, record_twins
from tests.support.wait import until
from tests.support.warm_process import WarmProcess

pytestmark = pytest.mark.thorough

KILLS = 6


def seeded(what: str) -> int:
    """Return the seed, which is printed; CHAOS_SEED of the environment repeats a failure."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"{what}: CHAOS_SEED={seed}")
    return seed


@dataclass
class Deployment:
    """Keeps one operator running, as a Deployment does."""

    kube: Kube
    namespace: str
    kubeconfig: Path
    log: Path
    process: WarmProcess | None = None
    ends: list[int] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)

    async def run(self) -> None:
        """Start an operator, and another one each time it has ended."""
        while True:
            self.process = await start_operator(self.kubeconfig, self.namespace, self.log)
            self.ends.append(await self.process.wait())
            # The lease expires by itself after 15 s. Deleting it has the same effect, sooner.
            with suppress(NotFound):
                await self.kube.delete(LEASES, self.namespace, names.OPERATOR)

    def kill(self) -> bool:
        """End the operator without warning.

        Return False if it was killed earlier and this is its last log line.
        """
        if self.process is None or self.process.pid in self.killed:
            return False
        self.killed.add(self.process.pid)
        self.process.kill()
        return True


@asynccontextmanager
async def deployed(
    kube: Kube, namespace: str, kubeconfig: Path, log: Path
) -> AsyncIterator[Deployment]:
    """Keep an operator running while the block lasts."""
    deployment = Deployment(kube, namespace, kubeconfig, log)
    task = asyncio.create_task(deployment.run())
    try:
        yield deployment
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        if deployment.process is not None:
            await end_operator(deployment.process)
        print(f"operators ended with {deployment.ends}")
        print(log.read_text())


@pytest.mark.guarantee(
    "converges-to-desired-pods",
    "plan-runs-once-in-order",
    "operator-killed-between-writes",
    "overlapping-requests",
)
async def test_an_operator_killed_at_any_write_executes_every_request_exactly_once(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    rng = random.Random(seeded("kills"))
    async with (
        kubelet(kube, namespace, node=f"node-{namespace}"),
        record_twins(kube, namespace) as twins,
        chaos_proxy(cluster, tmp_path) as proxy,
        deployed(kube, namespace, proxy.kubeconfig, tmp_path / "log") as deployment,
    ):
        series = Series(kube, namespace, rng)
        await series.begin()
        killed = _kill_at_writes(proxy, deployment, rng)
        await series.run()
        await series.check()
        assert len(killed) == KILLS, killed
        await until("the killed have ended", lambda: _ended(deployment))
        assert deployment.ends == [-9] * KILLS
        assert twins == []


@pytest.mark.guarantee(
    "converges-to-desired-pods",
    "errors-have-one-meaning",
    "lost-answer-of-a-create",
    "watch-cut-or-expired",
)
async def test_lost_delayed_and_rejected_requests_and_cut_watches_cost_only_time(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    seed = seeded("faults")
    async with (
        kubelet(kube, namespace, node=f"node-{namespace}"),
        record_twins(kube, namespace) as twins,
        chaos_proxy(cluster, tmp_path, seed) as proxy,
        deployed(kube, namespace, proxy.kubeconfig, tmp_path / "log"),
    ):
        series = Series(kube, namespace, random.Random(seed))
        await series.begin()
        await series.run()
        await until("every fault has happened", lambda: _every_fault_occurred(proxy))
        proxy.rng = None
        proxy.cut_watches()
        await series.check()
        assert twins == []


def _kill_at_writes(proxy: ChaosProxy, deployment: Deployment, rng: random.Random) -> list[str]:
    """Kill the operator at some of the coming writes.

    The server may have carried out the write or not; the answer is lost.
    """
    killed: list[str] = []
    left = rng.randint(1, 8)

    def on_write(write: WriteRequest, when: When) -> None:
        nonlocal left
        if len(killed) == KILLS or "/leases" in write.path:
            return
        left -= 1
        if left <= 0 and deployment.kill():
            killed.append(f"{when} {write.method} {write.path}")
            print(f"killed {killed[-1]}")
            left = rng.randint(2, 16)

    proxy.on_write = on_write
    return killed


async def _ended(deployment: Deployment) -> bool:
    return len(deployment.ends) >= KILLS


async def _every_fault_occurred(proxy: ChaosProxy) -> bool:
    return {*REQUESTS, *WATCHES, "watch cut"} - {"none"} <= set(proxy.faults)
