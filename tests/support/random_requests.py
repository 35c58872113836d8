"""Makes a random series of scale-outs, scale-ins, plans and pod failures.

The result is the same in any order and under faults.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from elasticjob_api import names
from elasticjob_api.indices import parse_indices
from elasticjob_api.meta import Json
from elasticjob_api.scaleplan import FINISHED
from elasticjob_kube.errors import NotFound
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    Resource,
)
from elasticjob_kube.session import Kube
from elasticjob_operator.core.model.pod import Pod

from tests.support.fake_kubelet import end
from tests.support.operator_process import create, job, phase
from tests.support.wait import until

BEGIN = 8
LOST = 4
"""Members that ScaleIns may remove: the lower indices, whose pods fail, always stay."""
CPU = "200m"


@dataclass
class Series:
    """The requests for each job: the changes of size, and the number of failed members."""

    kube: Kube
    namespace: str
    rng: random.Random
    jobs: tuple[str, ...] = ("alpha", "beta")
    requested: dict[str, dict[tuple[str, str], int]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    observations: list[str] = field(default_factory=list)

    async def begin(self) -> None:
        """Create the jobs and wait until they run."""
        for name in self.jobs:
            self.requested[name] = {}
            policy = {"planHistoryLimit": 100}
            await self.kube.create(
                ELASTIC_JOBS, self.namespace, job(name, replicas=BEGIN, most=60, runPolicy=policy)
            )
        for name in self.jobs:
            await phase(self.kube, self.namespace, ELASTIC_JOBS, name, "Running", seconds=90)

    async def run(self) -> None:
        """Make all requests, in a random order and at random times."""
        steps = [
            (name, *step)
            for name in self.jobs
            for step in (
                *(("out", n) for n in (1, 2, 3)),
                *(("in", n) for n in (1, LOST - 1)),
                *(("plan", n) for n in (1, 2)),
                ("resize", 0),
                *(("vanish", n) for n in (0, 1)),
                *(("fail", n) for n in (2, 3)),
            )
        ]
        self.rng.shuffle(steps)
        for name, what, number in steps:
            await asyncio.sleep(self.rng.uniform(0, 0.3))
            if what in ("vanish", "fail"):
                await self._kill(name, number, fails=what == "fail")
            else:
                await self._send(name, what, number)

    async def _send(self, job_name: str, what: str, number: int) -> None:
        requests: dict[str, tuple[Resource, Json, int]] = {
            "out": (SCALE_OUTS, {"count": number}, number),
            "in": (SCALE_INS, {"count": number}, -number),
            "plan": (SCALE_PLANS, {"createPods": [{"role": "worker"}] * number}, number),
            "resize": (
                SCALE_PLANS,
                {"replicaResourceSpecs": {"worker": {"resource": {"cpu": CPU}}}},
                0,
            ),
        }
        resource, spec, change = requests[what]
        name = f"{job_name}-{what}-{number}"
        await create(self.kube, self.namespace, resource, name, jobName=job_name, **spec)
        self.requested[job_name][resource.kind, name] = change

    async def _kill(self, job_name: str, index: int, *, fails: bool) -> None:
        """Delete the member's pod or let it fail, as soon as it runs."""
        selector = f"{names.LABEL_JOB_NAME}={job_name},{names.LABEL_INDEX}={index}"

        async def running() -> Json:
            found = (await self.kube.list(PODS, self.namespace, label_selector=selector))["items"]
            return next((pod for pod in found if pod["status"]["phase"] == "Running"), {})

        pod = await until(f"{job_name} {index} runs", running, seconds=60)
        name = pod["metadata"]["name"]
        if fails:
            await end(self.kube, self.namespace, name, 1, message="out of luck")
            self.failures[job_name] += 1
        else:
            with suppress(NotFound):
                await self.kube.delete(PODS, self.namespace, name)

    async def check(self) -> None:
        """Check in the end that all requests were executed once, and nothing is left over."""
        for name in self.jobs:
            await self._check_job(name)
        pods = await self.kube.list(PODS, self.namespace)
        masters = [
            p
            for p in pods["items"]
            if p["metadata"]["labels"][names.LABEL_ROLE] == names.ROLE_MASTER
        ]
        assert len(masters) == len(self.jobs)

    async def _check_job(self, name: str) -> None:
        requested = self.requested[name]
        plans = await until(f"the requests of {name} end", lambda: self._ended(name), seconds=120)
        assert len(plans) == len(requested), [(p["metadata"]["name"], p["spec"]) for p in plans]
        created: list[str] = []
        for plan in plans:
            status = plan["status"]
            what = _request(plan)
            assert status["phase"] == "Succeeded", (what, status)
            change = _size(status["targets"]) - _size(status["before"])
            assert change == requested[what], (what, status)
            created += status.get("createdPods", [])
        assert (
            len(created)
            == len(set(created))
            == sum(change for change in requested.values() if change > 0)
        )
        size = BEGIN + sum(requested.values())
        status = await until(
            f"{name} has {size} workers",
            lambda: self._at_rest(name, size),
            seconds=60,
            explain=self.seen,
        )
        assert status["replicaStatuses"]["worker"]["restarts"] == self.failures[name]

    def seen(self) -> str:
        """Return the last observations of a job."""
        return "\n".join(self.observations)

    async def _ended(self, name: str) -> list[Json]:
        """Return the plans of a job when each one and each request has ended."""
        found: list[Json] = []
        for resource in (SCALE_INS, SCALE_OUTS, SCALE_PLANS):
            items = (await self.kube.list(resource, self.namespace))["items"]
            mine = [item for item in items if item["spec"]["jobName"] == name]
            done = FINISHED if resource is SCALE_PLANS else ("ScaleSucceeded", "ScaleFailed")
            if any(item.get("status", {}).get("phase") not in done for item in mine):
                return []
            found = mine
        return found

    async def _at_rest(self, name: str, size: int) -> Json | None:
        """Return the status when pods, status and spec have this size and no plan runs."""
        found = await self.kube.get(ELASTIC_JOBS, self.namespace, name)
        selector = f"{names.LABEL_JOB_NAME}={name},{names.LABEL_ROLE}=worker"
        pods = (await self.kube.list(PODS, self.namespace, label_selector=selector))["items"]
        self.observations = [
            f"{p['metadata']['name']} {p['status']['phase']} with {_cpu(p)}" for p in pods
        ]
        self.observations.append(str(found["status"]))
        # They stay for their logs.
        pods = [pod for pod in pods if pod["status"]["phase"] != "Failed"]
        alive = [pod for pod in pods if pod["status"]["phase"] == "Running" and _cpu(pod) == CPU]
        status: Json = found["status"]
        settled = (status["phase"], status["workers"], status.get("currentPlan")) == (
            "Running",
            f"{size}/{size}",
            None,
        )
        requested = found["spec"]["replicaSpecs"]["worker"]["replicas"]
        return status if settled and requested == size == len(alive) == len(pods) else None


@asynccontextmanager
async def record_twins(kube: Kube, namespace: str) -> AsyncIterator[list[str]]:
    """Watch all pods; yield a list that gets an entry each time that a member has two live pods."""
    twins_found: list[str] = []
    alive: dict[str, Pod] = {}

    def on_change(before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        assert pod is not None
        alive.pop(pod.metadata.uid, None)
        if after is not None and not after.finished:
            alive[after.metadata.uid] = after
            member = (after.metadata.labels[names.LABEL_JOB_UID], after.role, after.index)
            twins = [
                p.name
                for p in alive.values()
                if (p.metadata.labels[names.LABEL_JOB_UID], p.role, p.index) == member
            ]
            if len(twins) > 1:
                twins_found.append(f"{member}: {', '.join(twins)}")

    watch = Informer(
        kube,
        PODS,
        Pod,
        namespace=namespace,
        label_selector=names.LABEL_JOB_UID,
        on_change=on_change,
    )
    task = asyncio.create_task(watch.run())
    try:
        yield twins_found
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _request(plan: Json) -> tuple[str, str]:
    """Return the request of a plan: the ScaleIn or ScaleOut that owns it, else the plan itself."""
    for owner in plan["metadata"].get("ownerReferences", ()):
        if owner["kind"] in ("ScaleIn", "ScaleOut"):
            return owner["kind"], owner["name"]
    return "ScalePlan", plan["metadata"]["name"]


def _size(indices: dict[str, str]) -> int:
    return sum(len(parse_indices(text)) for text in indices.values())


def _cpu(pod: Json) -> Any:
    return pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
