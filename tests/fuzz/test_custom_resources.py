"""Applies one tenant's random custom resources to a real API server.

The operator keeps working for another tenant.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec
import psutil
import pytest
from elasticjob_api.elasticjob import Phase
from elasticjob_kube.errors import KubeError
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    NAMESPACES,
    RESOURCE_QUOTAS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    Resource,
)
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster.cluster import Cluster

from tests.conftest import shared_cluster, wait_for_defaults
from tests.support.fake_kubelet import kubelet
from tests.support.fuzz.random_resources import RandomResources
from tests.support.operator_process import create, end_operator, job, phase, start_operator
from tests.support.wait import until
from tools.generate import definitions

pytestmark = pytest.mark.thorough

KINDS = (ELASTIC_JOBS, SCALE_PLANS, SCALE_OUTS, SCALE_INS)
JOBS = tuple(f"fuzz-{number}" for number in range(12))
TOGETHER = 8
MOST_OBJECTS = 40
"""The number of objects of a kind at a time; for one more, the oldest is deleted."""
MEMORY_LIMIT = 512 * 2**20
"""The memory limit of the chart's container."""
ODD_REFUSALS = re.compile(r"\b(runtime error|panic|nil pointer)\b")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a separate cluster: the operator works in all of its namespaces."""
    with shared_cluster(tmp_path_factory, "fuzzed", control_plane_only=True) as fuzzed:
        yield fuzzed


@asynccontextmanager
async def running_operator(cluster: Cluster, log: Path) -> AsyncIterator[psutil.Process]:
    process = await start_operator(cluster.kubeconfig, None, log)
    try:
        yield psutil.Process(process.pid)
        assert process.returncode is None, log.read_text()[-8000:]
    finally:
        await end_operator(process)


async def new_namespace(kube: Kube, name: str) -> str:
    await kube.create(NAMESPACES, None, {"metadata": {"name": name}})
    await wait_for_defaults(kube, name)
    return name


async def bystander(kube: Kube, namespace: str, stopped: asyncio.Event) -> int:
    """Scale a job out and in while the other tenant works; return the number of changes."""
    for number in itertools.count():
        if stopped.is_set():
            return number
        for resource, name in ((SCALE_OUTS, f"out-{number}"), (SCALE_INS, f"in-{number}")):
            await create(kube, namespace, resource, name, jobName="bystander", count=1)
            await phase(kube, namespace, resource, name, "ScaleSucceeded")
    raise AssertionError


class Tenant:
    """Creates, changes and deletes random objects."""

    def __init__(self, kube: Kube, namespace: str, seed: int) -> None:
        defined = definitions()
        schemas = {
            kind: defined[kind.plural]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            for kind in KINDS
        }
        self.random = RandomResources(random.Random(seed), schemas, (*JOBS, "nobody"))
        self.answers: Counter[str] = Counter()
        self.problems: list[str] = []
        self._kube = kube
        self._namespace = namespace
        self._present: dict[Resource, list[str]] = {kind: [] for kind in KINDS}
        self._numbers = itertools.count()

    async def run(self, inputs: int) -> None:
        left = iter(range(inputs))

        async def some() -> None:
            for _ in left:
                await self._one()

        await asyncio.gather(*(some() for _ in range(TOGETHER)))

    async def _one(self) -> None:
        rng = self.random.rng
        resource = rng.choices(KINDS, (4, 2, 1, 1))[0]
        present = self._present[resource]
        names = [f"request-{next(self._numbers)}"]
        if resource == ELASTIC_JOBS:
            names = [name for name in JOBS if name not in present]
        if names and (not present or rng.random() < 0.5):
            name = rng.choice(names)
            if await self._send(
                "POST", resource.path(self._namespace), self.random.body(resource, name)
            ):
                present.append(name)
                if resource == ELASTIC_JOBS and rng.random() < 0.3:
                    await self._call_active(name)
            if len(present) > MOST_OBJECTS:
                await self._delete(resource, present.pop(0))
            return
        name = rng.choice(present)
        if rng.random() < 0.1:
            present.remove(name)
            await self._delete(resource, name)
            return
        part = rng.choice(("spec", "status"))
        subresource = {"spec": None, "status": "status"}[part]
        path = resource.path(self._namespace, name, subresource)
        kind = rng.choice(("merge-patch+json", "merge-patch+json", "apply-patch+yaml"))
        await self._send("PATCH", path, self.random.change(resource, part), f"application/{kind}")

    async def _call_active(self, name: str) -> None:
        """Write the status of a new job, before the operator has checked its spec."""
        body = msgspec.json.encode({"status": {"phase": self.random.rng.choice(get_args(Phase))}})
        await self._send(
            "PATCH",
            ELASTIC_JOBS.path(self._namespace, name, "status"),
            body,
            "application/merge-patch+json",
        )

    async def _send(
        self, method: str, path: str, body: bytes, content_type: str = "application/json"
    ) -> bool:
        params = None
        if "apply" in content_type:
            params = {"fieldManager": "tenant", "force": "true"}
        try:
            raw = msgspec.Raw(body)
            await self._kube.request(
                method, path, params=params, body=raw, content_type=content_type
            )
        except KubeError as error:
            self.answers[f"{method} {error.status}"] += 1
            if ODD_REFUSALS.search(error.message):
                self.problems.append(f"{method} {path} {body[:500]!r}: {error.message}")
            return False
        self.answers[f"{method} taken"] += 1
        return True

    async def _delete(self, resource: Resource, name: str) -> None:
        try:
            await self._kube.delete(resource, self._namespace, name)
        except KubeError as error:
            self.answers[f"DELETE {error.status}"] += 1

    async def delete_all(self) -> None:
        for kind in KINDS:
            await self._kube.request("DELETE", kind.path(self._namespace))
            await until(f"no {kind.plural} are left", partial(self._none_left, kind))

    async def _none_left(self, kind: Resource) -> bool:
        listed: dict[str, Any] = await self._kube.list(kind, self._namespace)
        return not listed["items"]


@pytest.mark.guarantee("bad-input-is-refused")
async def test_no_custom_resource_of_one_tenant_harms_the_operator_or_the_job_of_another(
    cluster: Cluster, inputs: int, seed: int, tmp_path: Path
) -> None:
    log = tmp_path / "operator.log"
    async with connect(user_agent="fuzz", kubeconfig=cluster.kubeconfig) as kube:
        hostile, quiet = [
            await new_namespace(kube, f"{name}-{seed}") for name in ("hostile", "quiet")
        ]
        quota = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "30"}}}
        await kube.create(RESOURCE_QUOTAS, hostile, quota)
        tenant = Tenant(kube, hostile, seed)
        stopped = asyncio.Event()
        async with running_operator(cluster, log) as process, kubelet(kube, quiet, agents=False):
            await kube.create(ELASTIC_JOBS, quiet, job("bystander", master={"image": "m:1"}))
            await phase(kube, quiet, ELASTIC_JOBS, "bystander", "Running")
            scaling = asyncio.create_task(bystander(kube, quiet, stopped))
            attacking = asyncio.create_task(tenant.run(max(inputs // 10, 100)))
            try:
                await asyncio.wait((scaling, attacking), return_when=asyncio.FIRST_COMPLETED)
                assert not scaling.done(), (
                    f"the other tenant's job is not served: {scaling.exception()}"
                )
                await attacking
                await tenant.delete_all()
                stopped.set()
                assert await scaling > 0
            finally:
                attacking.cancel()
                scaling.cancel()
            assert process.memory_info().rss < MEMORY_LIMIT
        print(dict(tenant.answers))
        assert tenant.problems == []
        assert tenant.answers["POST taken"] > 0
        assert tenant.answers["PATCH taken"] > 0
        text = log.read_text()
        for problem in ("unexpected error", "Traceback", "never retrieved", "never awaited"):
            at = text.find(problem)
            assert at < 0, text[max(at - 500, 0) : at + 6000]
