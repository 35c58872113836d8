"""What a pool reads from a job and its plans."""

from __future__ import annotations

from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_policies import RunPolicy
from elasticjob_api.pooled_jobs import KUEUE_QUEUE
from elasticjob_api.scale_requests import ScaleOut
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_operator.core.model.observed import Observed, request_plan_name
from elasticjob_operator.core.sharing.facts import Memory, fact
from elasticjob_operator.core.sharing.model import PooledJob
from msgspec.structs import replace

SIZE = 2


def plan(name: str, size: int, second: int, source: str = "Manual", **metadata: Any) -> ScalePlan:
    created = f"2026-01-01T00:00:{second:02}Z"
    found = {
        "metadata": {"name": name, "uid": name, "creationTimestamp": created, **metadata},
        "spec": {
            "jobName": "a",
            "source": source,
            "replicaResourceSpecs": {"worker": {"replicas": size}},
        },
    }
    return msgspec.convert(found, ScalePlan)


def requested(*plans: ScalePlan, outs: tuple[ScaleOut, ...] = (), current: str = "") -> PooledJob:
    """Return what a pool knows of a job of two members with these plans."""
    found = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {
            "framework": "custom",
            "replicaSpecs": {"worker": {"replicas": SIZE, "template": {}}},
        },
        "status": {
            "phase": "Running",
            "currentPlan": current or None,
            "replicaStatuses": {"worker": {"desired": SIZE, "indices": "0-1"}},
        },
    }
    observed = Observed(msgspec.convert(found, ElasticJob), plans=plans, scale_outs=outs)
    return fact(observed, Memory(), member=(1,), fixed=(0,), priority=0, weight=1.0)


def test_a_job_in_a_queue_is_left_alone_when_its_user_suspends_it_and_counts_by_its_quota() -> None:
    found = {
        "metadata": {"name": "a", "labels": {KUEUE_QUEUE: "team"}},
        "spec": {"framework": "custom", "replicaSpecs": {"worker": {"template": {}}}},
        "status": {"replicaStatuses": {"worker": {"desired": 3, "indices": "0-2"}}},
    }
    job = msgspec.convert(found, ElasticJob)
    suspended = replace(job, spec=replace(job.spec, run_policy=RunPolicy(suspend=True)))
    assert of_queue(suspended, 3).is_kept
    in_part = of_queue(job, 2)
    assert (in_part.size, in_part.held, in_part.wanted) == (2, 2, 3)


def of_queue(job: ElasticJob, quota: int) -> PooledJob:
    """Return what a pool knows of a job that has quota for this number of members."""
    found = Observed(job)
    return fact(found, Memory(), member=(1,), fixed=(0,), priority=0, weight=1.0, quota=quota)


def scale_out(**status: Any) -> ScaleOut:
    found = {
        "metadata": {"name": "more", "uid": "out", "creationTimestamp": "2026-01-01T00:00:30Z"},
        "spec": {"jobName": "a", "count": 3},
        "status": status,
    }
    return msgspec.convert(found, ScaleOut)


def test_the_plan_that_waits_is_the_one_that_the_job_begins_next() -> None:
    early = plan("early", 4, 1)
    late = plan("late", 6, 2)
    assert requested(late, early).requested == 4
    assert requested(late, early, current="late").requested == 6
    assert requested(plan("old", 7, 1, "Auto"), plan("new", 3, 2, "Auto")).requested == 3


def test_the_plan_of_a_request_comes_before_plans_that_were_made_earlier() -> None:
    out = scale_out()
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": "ScaleOut",
        "name": "more",
        "uid": "out",
        "controller": True,
    }
    own = plan(request_plan_name(out), 5, 40, "ScaleOut", ownerReferences=[owner])
    assert requested(plan("early", 4, 1), own, outs=(out,)).requested == 5


def test_nothing_waits_for_a_pool_while_a_request_without_a_plan_is_first() -> None:
    assert requested(plan("late", 6, 40), outs=(scale_out(),)).requested == SIZE


def test_a_pools_own_plan_that_shrinks_a_job_passes_plans_that_wait_for_room() -> None:
    found = requested(plan("early", 4, 1), plan("a-pool-1", 1, 2, "Pool"))
    assert (found.requested, found.is_kept) == (SIZE, True)
