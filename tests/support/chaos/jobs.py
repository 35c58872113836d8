"""Runs the jobs of a chaos run, and their users, who repeat requests until they are accepted."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from elasticjob_api import names
from elasticjob_api.job_status import ENDED
from elasticjob_api.meta import Json
from elasticjob_api.scaleplan import FINISHED
from elasticjob_kube.errors import AlreadyExists, KubeError, NotFound, TryLater
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    Resource,
)
from elasticjob_kube.session import Kube

from tests.support.chaos.cluster import NAMESPACE, REPOSITORY, ChaosCluster
from tests.support.chaos.pool import LABELS
from tests.support.chaos.schedule import MOST_WORKERS, JobDraw, Request

STEP_SECONDS = 0.08
REQUEST_KINDS = (SCALE_INS, SCALE_OUTS, SCALE_PLANS)
DEADLINE_SECONDS = 1800
"""Longer than any run, and shorter than the longest jumps of a clock, which must end no job."""
LOST_SECONDS = 5
"""The allowed minimum. A frozen member with a connection is lost after three times this."""


@dataclass(frozen=True)
class SentRequest:
    """A request, and the time when it was made, on the monotonic clock."""

    request: Request
    at: float


@dataclass
class Job:
    """One job of the run.

    Attributes:
        draw: its draw from the seed.
        folder: the folder of its log; its volume, which may be full, is a link in it.
        sent: its requests, by kind of object and name.
        suspended: the times when it was suspended and when it was resumed.
    """

    cluster: ChaosCluster
    kube: Kube
    draw: JobDraw
    sent: dict[tuple[str, str], SentRequest] = field(default_factory=dict)
    suspended: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return its name."""
        return self.draw.name

    @property
    def folder(self) -> Path:
        """Return the folder of its log."""
        return self.cluster.directory / "jobs" / self.name

    @property
    def will_be_suspended(self) -> bool:
        """Return whether it is suspended, or will be."""
        return len(self.suspended) < 2 * sum(
            request.kind == "suspend" for request in self.draw.requests
        )

    def manifest(self) -> Json:
        """Return the ElasticJob."""
        command = [
            sys.executable,
            "-m",
            f"tests.support.chaos.{self.draw.program}_training",
            str(self.folder),
        ]
        environ = {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(self.cluster.volume / "tmp")}
        container = {
            "name": "train",
            "image": "train:1",
            "command": [*command, str(self.draw.samples), str(STEP_SECONDS)],
            "env": [{"name": name, "value": value} for name, value in environ.items()],
            "resources": {
                "requests": {"cpu": "10m", "memory": "64Mi"},
                "limits": {"memory": "1Gi"},
            },
        }
        agent = {"source": "Image", "standby": "None"}
        if self.draw.program == "synchronous":
            agent["standby"] = "Auto"
            if self.draw.samples % 8:  # these save in memory, the others in the storage
                agent["stateMemory"] = "64Mi"
        pod: Json = {"containers": [container]}
        if self.draw.priority is not None:
            pod["priorityClassName"] = self.draw.priority
        worker = {
            "replicas": self.draw.workers,
            "minReplicas": 1,
            "maxReplicas": MOST_WORKERS,
            "drainSeconds": 10,
            "restartLimit": 10000,
            "template": {"spec": pod},
        }
        if self.draw.program == "continuing":
            worker["onWorldChange"] = "Notify"
        return {
            "apiVersion": names.API_VERSION,
            "kind": "ElasticJob",
            "metadata": {"name": self.name, "labels": {} if self.draw.priority is None else LABELS},
            "spec": {
                "framework": "jax" if self.draw.program == "continuing" else "custom",
                "agent": agent,
                "autoscaling": {"enabled": self.draw.auto, "cooldownSeconds": 8},
                "health": {"lostSeconds": LOST_SECONDS},
                "master": {"restartLimit": 10000},
                "runPolicy": {
                    "activeDeadlineSeconds": DEADLINE_SECONDS,
                    "cleanPodPolicy": "All",
                    "backoffLimit": 10000,
                    "planHistoryLimit": 100,
                },
                "replicaSpecs": {"worker": worker},
            },
        }

    async def run(self, seconds: float) -> Json | None:
        """Create the job and make its requests.

        Return its final status, or None if it did not end in this time.
        """
        (self.folder / "log").mkdir(parents=True)
        (self.cluster.volume / self.name).mkdir()
        (self.folder / "volume").symlink_to(self.cluster.volume / self.name)
        await self.repeat_until_answered(
            lambda: self.kube.create(ELASTIC_JOBS, NAMESPACE, self.manifest())
        )
        self.cluster.record.write(
            "job", name=self.name, program=self.draw.program, samples=self.draw.samples
        )
        users = asyncio.create_task(self._make_requests())
        try:
            async with asyncio.timeout(seconds):
                while (status := await self.status()).get("phase") not in ENDED:
                    await asyncio.sleep(0.5)
                return status
        except TimeoutError:
            return None
        finally:
            users.cancel()
            await asyncio.gather(users, return_exceptions=True)

    async def status(self) -> Json:
        """Return its status."""
        found: Json = (
            await self.repeat_until_answered(
                lambda: self.kube.get(ELASTIC_JOBS, NAMESPACE, self.name)
            )
        ).get("status", {})
        return found

    async def pods(self) -> Json:
        """Return the status of each of its pods, by name."""
        selector = f"{names.LABEL_JOB_NAME}={self.name}"
        listed = await self.repeat_until_answered(
            lambda: self.kube.list(PODS, NAMESPACE, label_selector=selector)
        )
        return {item["metadata"]["name"]: item.get("status") for item in listed["items"]}

    async def requests(self) -> list[Json]:
        """Return its ScalePlans, ScaleIns and ScaleOuts."""
        found = []
        for resource in REQUEST_KINDS:
            listed = await self.repeat_until_answered(lambda: self.kube.list(resource, NAMESPACE))  # noqa: B023
            found += [
                {**item, "kind": resource.kind}
                for item in listed["items"]
                if item["spec"]["jobName"] == self.name
            ]
        return found

    async def unfinished(self) -> list[str]:
        """Return its requests that have not ended."""
        return [
            f"{item['kind']} {item['metadata']['name']} is {item.get('status', {}).get('phase')}"
            for item in await self.requests()
            if item.get("status", {}).get("phase")
            not in (*FINISHED, "ScaleSucceeded", "ScaleFailed")
        ]

    async def delete(self) -> None:
        """Delete it."""
        await self.repeat_until_answered(
            lambda: self.kube.delete(ELASTIC_JOBS, NAMESPACE, self.name)
        )

    async def repeat_until_answered(self, call: Callable[[], Awaitable[Json]]) -> Json:
        """Repeat a call until the API server has answered.

        An object that already exists, or does not exist any more, is an answer.
        """
        while True:
            try:
                return await call()
            except (AlreadyExists, NotFound):
                return {}
            except TryLater:
                await asyncio.sleep(0.3)

    async def _make_requests(self) -> None:
        for number, request in enumerate(self.draw.requests):
            await asyncio.sleep(request.after)
            self.cluster.record.write(
                "request", job=self.name, kind=request.kind, amount=request.amount
            )
            try:
                await self._make(request, f"{self.name}-{number}-{request.kind}")
            except KubeError as error:
                self.cluster.record.write(
                    "refused", job=self.name, kind=request.kind, message=str(error)
                )

    async def _make(self, request: Request, name: str) -> None:
        amount = request.amount
        specs: dict[str, tuple[Resource, Json]] = {
            "out": (SCALE_OUTS, {"count": amount, "timeoutSeconds": 60}),
            "in": (SCALE_INS, {"count": amount, "timeoutSeconds": 60}),
            "plan": (
                SCALE_PLANS,
                {"replicaResourceSpecs": {"worker": {"replicas": amount}}, "timeoutSeconds": 60},
            ),
            "migrate": (
                SCALE_PLANS,
                {"migratePods": [{"role": "worker", "index": 0}], "timeoutSeconds": 60},
            ),
            "resources": (
                SCALE_PLANS,
                {
                    "replicaResourceSpecs": {"worker": {"resource": {"cpu": f"{amount}1m"}}},
                    "timeoutSeconds": 60,
                },
            ),
        }
        if request.kind in specs:
            resource, spec = specs[request.kind]
            body = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {"name": name},
            }
            self.sent[resource.kind, name] = SentRequest(request, time.monotonic())
            await self.repeat_until_answered(
                lambda: self.kube.create(
                    resource, NAMESPACE, {**body, "spec": {"jobName": self.name, **spec}}
                )
            )
        elif request.kind == "scale":
            body = {"spec": {"replicas": amount}}
            await self.repeat_until_answered(
                lambda: self.kube.patch(
                    ELASTIC_JOBS, NAMESPACE, self.name, body, subresource="scale"
                )
            )
        elif request.kind == "edit":
            await self._patch({"replicaSpecs": {"worker": {"replicas": amount}}})
        else:
            await self._suspend(amount)

    async def _suspend(self, seconds: int) -> None:
        self.suspended.append(time.monotonic())
        try:
            await self._patch({"runPolicy": {"suspend": True}})
            await asyncio.sleep(seconds)
        finally:
            await asyncio.shield(self._patch({"runPolicy": {"suspend": False}}))
            self.suspended.append(time.monotonic())

    async def _patch(self, spec: Json) -> None:
        await self.repeat_until_answered(
            lambda: self.kube.patch(ELASTIC_JOBS, NAMESPACE, self.name, {"spec": spec})
        )
