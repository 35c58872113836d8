"""Figures about the operator's decisions for a job as large as one may be, without a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from elasticjob_api.elasticjob import MAX_REPLICAS, ElasticJob
from elasticjob_api.indices import format_indices
from elasticjob_kube.session import Json
from elasticjob_operator.core.decide import decide
from elasticjob_operator.core.manifests.pods import master_pod, member_pod
from elasticjob_operator.core.model.observed import Defaults, Observed, Pod
from msgspec.structs import replace

from bench import jobs
from bench.figure import Result, compared

_DEFAULTS = Defaults(master_image="master:1", agent_image="master:1")
_DECISIONS = 20


async def decision_10000() -> Result:
    """Measure the CPU time of one decision about a job of 10,000 members without an agent.

    One member has just failed.
    The limit is that of looking at each member's pod once, which is the least that a decision has
    to do.
    """
    observed = _running_job(MAX_REPLICAS)
    now = time.time()
    assert decide(observed, now, _DEFAULTS).actions, "the failure is not counted"
    ours = [_cpu_ms(lambda: decide(observed, now, _DEFAULTS)) for _ in range(_DECISIONS)]
    limits = [_cpu_ms(lambda: _look_once(observed)) for _ in range(_DECISIONS)]
    return compared(ours, limits, "ms of CPU")


def _running_job(members: int) -> Observed:
    """Return a running job with this number of members, of which the first has failed."""
    body = jobs.job("job", members)
    body["metadata"] |= {"namespace": "bench", "uid": "0-1-2-3", "generation": 1}
    body["spec"]["framework"] = "custom"
    body["spec"]["replicaSpecs"]["worker"]["agent"] = "None"
    indices = format_indices(range(members))
    worker = {
        "desired": members,
        "indices": indices,
        "startedIndices": indices,
        "highestIndex": members - 1,
    }
    body["status"] = {
        "phase": "Running",
        "replicaStatuses": {"worker": worker},
        "master": {"incarnations": 1},
    }
    job = msgspec.convert(body, ElasticJob)
    bodies = [
        member_pod(job, "worker", n, 0, resources={}, restarts=0, defaults=_DEFAULTS)
        for n in range(members)
    ]
    bodies.append(master_pod(job, 0, restarts=0, defaults=_DEFAULTS))
    first, *others = (_running(pod, number) for number, pod in enumerate(bodies))
    return Observed(
        job, pods=(replace(first, status=replace(first.status, phase="Failed")), *others)
    )


def _running(body: Json, number: int) -> Pod:
    """Return a pod as a watch reports it that is ready."""
    metadata = body["metadata"] | {
        "uid": f"{number:08x}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.convert({"metadata": metadata, "spec": body["spec"], "status": status}, Pod)


def _look_once(observed: Observed) -> dict[tuple[str, int], bool]:
    return {(pod.role, pod.index): pod.ready for pod in observed.pods}


def _cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)
