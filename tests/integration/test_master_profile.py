"""Keeps the profile in the cluster.

The operator creates it, masters read and write it, and users may edit or delete it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_kube.resources import CONFIG_MAPS, ELASTIC_JOBS
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster.cluster import Cluster
from elasticjob_master.cluster.profile_keeper import ProfileKeeper
from elasticjob_master.controller import Controller
from elasticjob_master.core.autoscale.decision import Bounds
from elasticjob_master.core.autoscale.job_scaling import JobScaling, RoleResources
from elasticjob_master.core.autoscale.profile import read_profile
from elasticjob_master.core.autoscale.scaling_memory import RolePeaks
from elasticjob_master.job_facts import JobFacts
from elasticjob_operator.ensure_infrastructure import ensure_infrastructure

from tests.support.master.config import master_config
from tests.support.master.scaling_memories import memory_of
from tests.support.service_accounts import kubeconfig_of
from tests.support.wait import until

PROFILE = names.profile_config_map("digits")


def job(name: str, **autoscaling: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "image": "i", "command": ["train"]}]}}
    return {
        "apiVersion": ELASTIC_JOBS.api_version,
        "kind": ELASTIC_JOBS.kind,
        "metadata": {"name": name},
        "spec": {
            "framework": "custom",
            "replicaSpecs": {"worker": {"replicas": 1, "template": template}},
            "autoscaling": {"enabled": True, "profile": "digits", **autoscaling},
        },
    }


class Master:
    """The part of a master that keeps the profile, for a job that has settled."""

    def __init__(self, kube: Kube, namespace: str, name: str, *, size: int) -> None:
        config = master_config(name, f"uid-of-{name}", namespace=namespace)
        facts = JobFacts(profile="digits")
        controller = Controller(framework="custom", facts=facts)
        self.control = controller.scaling
        self.control.job_scaling = JobScaling(
            role="worker", desired=size, bounds=Bounds(1, 64), roles={"worker": RoleResources()}
        )
        peaks = {"worker": RolePeaks(window_cpu=1.5, memory=10**9)}
        self.settled = memory_of(rates={size: 100.0 * size}, settled=size, peaks=peaks)
        self.keeper = ProfileKeeper(kube, config, controller)

    def settle(self) -> None:
        self.control.autoscaler.memory = self.settled

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Master]:
        task = asyncio.ensure_future(self.keeper.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest_asyncio.fixture
async def master_kube(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> AsyncIterator[Kube]:
    """Open a session with exactly the rights of the master of a job with this profile."""
    made = await kube.create(ELASTIC_JOBS, namespace, job("first"))
    await ensure_infrastructure(kube, msgspec.convert(made, ElasticJob))
    mine = await kubeconfig_of(names.master_service("first"), cluster, kube, namespace, tmp_path)
    async with connect(user_agent="elasticjob-tests", kubeconfig=mine) as session:
        yield session


async def stored(kube: Kube, namespace: str) -> list[tuple[str, int]]:
    found = await kube.get(CONFIG_MAPS, namespace, PROFILE)
    text = (found.get("data") or {}).get(names.PROFILE_KEY, "")
    return [(each.job, each.size) for each in read_profile(text)]


async def test_a_settled_job_leaves_a_profile_that_the_next_job_reads(
    kube: Kube, namespace: str, master_kube: Kube
) -> None:
    made = await kube.get(CONFIG_MAPS, namespace, PROFILE)
    assert "ownerReferences" not in made["metadata"], "it outlives every job"
    chosen = await kube.list(CONFIG_MAPS, namespace, label_selector=names.LABEL_PROFILE)
    assert [each["metadata"]["name"] for each in chosen["items"]] == [PROFILE]
    async with Master(master_kube, namespace, "first", size=8).running() as first:
        await asyncio.sleep(0)
        assert first.control.autoscaler.profile == ()
        first.settle()
        await until(
            "its size is stored",
            lambda: stored(kube, namespace),
            lambda found: found == [("first", 8)],
        )
    async with Master(master_kube, namespace, "second", size=9).running() as second:
        await until(
            "it is read", lambda: _profile(second), lambda jobs: [each.size for each in jobs] == [8]
        )
        assert second.control.autoscaler.profile[0].roles["worker"].cpu == 1.5


async def _profile(master: Master) -> Any:
    return master.control.autoscaler.profile


@pytest.mark.guarantee("wrong-profile")
async def test_masters_that_write_at_the_same_time_lose_nothing(
    kube: Kube, namespace: str, master_kube: Kube
) -> None:
    masters = [Master(master_kube, namespace, f"job-{number}", size=number) for number in (2, 3, 4)]
    for master in masters:
        master.settle()
    await asyncio.gather(*(master.keeper.write() for master in masters))
    assert sorted(await stored(kube, namespace)) == [("job-2", 2), ("job-3", 3), ("job-4", 4)]


@pytest.mark.guarantee("wrong-profile")
async def test_foreign_edits_are_overwritten_and_a_deleted_profile_breaks_nothing(
    kube: Kube, namespace: str, master_kube: Kube
) -> None:
    await kube.patch(CONFIG_MAPS, namespace, PROFILE, {"data": {names.PROFILE_KEY: "[" * 100_000}})
    async with Master(master_kube, namespace, "first", size=8).running() as master:
        master.settle()
        await until(
            "it is written again",
            lambda: _readable(kube, namespace),
            lambda found: found == [("first", 8)],
        )
        assert master.control.autoscaler.profile == ()
        await kube.delete(CONFIG_MAPS, namespace, PROFILE)
        await master.keeper.write()
    again = msgspec.convert(await kube.get(ELASTIC_JOBS, namespace, "first"), ElasticJob)
    await ensure_infrastructure(kube, again)
    assert await stored(kube, namespace) == []


async def _readable(kube: Kube, namespace: str) -> Any:
    try:
        return await stored(kube, namespace)
    except ValueError:
        return None


@pytest.mark.guarantee("wrong-profile")
async def test_a_foreign_config_map_of_that_name_is_left_alone(
    kube: Kube, namespace: str, master_kube: Kube
) -> None:
    await kube.delete(CONFIG_MAPS, namespace, PROFILE)
    theirs = {"metadata": {"name": PROFILE}, "data": {"theirs": "1"}}
    await kube.create(CONFIG_MAPS, namespace, theirs)
    made = msgspec.convert(await kube.get(ELASTIC_JOBS, namespace, "first"), ElasticJob)
    await ensure_infrastructure(kube, made)
    master = Master(master_kube, namespace, "first", size=8)
    master.settle()
    await master.keeper.write()
    found = await kube.get(CONFIG_MAPS, namespace, PROFILE)
    assert (found["data"], found["metadata"].get("labels")) == ({"theirs": "1"}, None)
