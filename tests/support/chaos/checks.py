"""Checks the state after a chaos run: requests have had their effect, and nothing is left."""

from __future__ import annotations

import asyncio
import re

from elasticjob_api import names
from elasticjob_api.indices import parse_indices
from elasticjob_api.meta import Json
from elasticjob_kube.errors import KubeError
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    NETWORK_POLICIES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from elasticjob_kube.session import Kube
from elasticjob_kube.transport import KEEP_ALIVE_SECONDS

from tests.support.chaos import processes
from tests.support.chaos.cluster import NAMESPACE, OPERATORS, ChaosCluster
from tests.support.chaos.jobs import Job, SentRequest
from tests.support.wait import until

ALL_KINDS = (
    *(ELASTIC_JOBS, SCALE_PLANS, SCALE_INS, SCALE_OUTS, PODS, SERVICES, SECRETS),
    *(CONFIG_MAPS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS, NETWORK_POLICIES),
)
_OF_KUBERNETES = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
_MOST_MORE = (30, 20, 5)
"""The most MB, open files and tasks an operator may have after the run above a new one's."""
_WAITING_TASKS = 3
"""An operator with at least this number of tasks leads."""
_LEFT_SECONDS = 60
_REST_SECONDS = 10


async def check_requests(job: Job) -> list[str]:
    """Return the problems of a job's requests.

    Each must end, give a reason for a failure, and have exactly its requested effect.
    """
    try:
        await until(
            "all requests have ended", job.unfinished, lambda left: not left, seconds=_LEFT_SECONDS
        )
    except AssertionError:
        return await job.unfinished()
    return [text for item in await job.requests() for text in wrong(item, _sent(job, item))]


async def rescales(job: Job) -> list[tuple[float, int]]:
    """Return time and size of each successful change of size, on the monotonic clock."""
    found = []
    for item in await job.requests():
        sent = _sent(job, item)
        status = item.get("status", {})
        if sent is not None and status.get("phase") == "Succeeded":
            before, targets = _sizes(status)
            found += [(sent.at, targets)] if before != targets else []
    return found


def _sent(job: Job, item: Json) -> SentRequest | None:
    """Return the change that a plan requested.

    None for a plan of the operator or master, or a request that is not a plan.
    """
    if item["kind"] != "ScalePlan":
        return None
    for owner in item["metadata"].get("ownerReferences", ()):
        if (sent := job.sent.get((owner["kind"], owner["name"]))) is not None:
            return sent
    return job.sent.get(("ScalePlan", item["metadata"]["name"]))


def _sizes(status: Json) -> tuple[int, int]:
    before, targets = (
        len(parse_indices(status.get(key, {}).get("worker", ""))) for key in ("before", "targets")
    )
    return before, targets


def wrong(item: Json, sent: SentRequest | None) -> list[str]:
    """Return the problems of a request that has ended.

    `sent` is the change that its plan requested, if that is known.
    """
    status = item.get("status", {})
    name = f"{item['kind']} {item['metadata']['name']}"
    phase = status.get("phase", "")
    has_reason = bool(status.get("message"))
    if phase in ("Failed", "ScaleFailed", "Cancelled", "PartiallySucceeded") and not has_reason:
        return [f"{name} is {phase} and does not say why"]
    if sent is None or phase != "Succeeded":
        return []
    before, targets = _sizes(status)
    request = sent.request
    wanted = {"out": before + request.amount, "in": before - request.amount, "plan": request.amount}
    wanted_now = wanted.get(request.kind, before)
    if targets == wanted_now:
        return []
    return [f"{name} ({request}) changed {before} to {targets} workers, not to {wanted_now}"]


async def check_nothing_left(cluster: ChaosCluster, kube: Kube) -> list[str]:
    """Return the objects and processes that still exist although no job does."""

    async def left() -> list[str]:
        found = []
        for resource in ALL_KINDS:
            for item in (await kube.list(resource, NAMESPACE))["items"]:
                metadata = item["metadata"]
                outlives_jobs = names.LABEL_PROFILE in metadata.get("labels", {})
                if not outlives_jobs and (resource.kind, metadata["name"]) not in _OF_KUBERNETES:
                    found.append(f"{resource.kind} {metadata['name']}")
        return found

    try:
        await until("no object is left", left, lambda found: not found, seconds=_LEFT_SECONDS)
    except (AssertionError, KubeError):
        return [f"left over: {what}" for what in await left()]
    return []


async def check_processes(uids: set[str]) -> list[str]:
    """Return the processes of deleted pods; `uids` are those of all pods of the run."""

    def left() -> list[str]:
        return [
            f"process {found.first} of pod {uid}"
            for uid, found in processes.of_pods().items()
            if uid in uids
        ]

    try:
        await until("no process is left", left, lambda found: not found, seconds=_LEFT_SECONDS)
    except AssertionError:
        return [f"left over: {what}" for what in left()]
    return []


async def check_operators(cluster: ChaosCluster) -> list[str]:
    """Compare the idle leader after the run with a new operator: memory, open files, tasks."""
    await asyncio.sleep(KEEP_ALIVE_SECONDS + _REST_SECONDS)  # until it has closed idle connections
    after = _leading(cluster)
    before = {name: cluster.pid(name) for name in OPERATORS}
    for name in OPERATORS:
        cluster.cluster.children[name].terminate()

    def renewed() -> bool:
        others = all(
            cluster.pid(name) != before[name] and cluster.tasks(name) for name in OPERATORS
        )
        return others and _leading(cluster)[2] > _WAITING_TASKS

    await until("a new operator leads", renewed, seconds=60)
    await asyncio.sleep(_REST_SECONDS)
    new = _leading(cluster)
    cluster.record.write("operators", after=after, new=new)
    bounds = zip(("MB", "open files", "asyncio tasks"), after, new, _MOST_MORE, strict=True)
    return [
        f"the leading operator has {had} {what} after the run; a new one has {has}"
        for what, had, has, most in bounds
        if had > has + most
    ]


def _leading(cluster: ChaosCluster) -> tuple[int, int, int]:
    """Return memory in MB, open files and tasks of the leading operator, which has more tasks."""
    return max(
        ((*cluster.usage(name), cluster.tasks(name)) for name in OPERATORS),
        key=lambda usage: usage[2],
    )


def errors_in_log(text: str) -> list[str]:
    """Return the last lines of the tracebacks in a log, each once."""
    found = re.findall(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)", text)
    return sorted(set(found))
