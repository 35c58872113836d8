"""What the master reads from an ElasticJob and its plans, and what it writes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_master import view
from elasticjob_master.core.progress import Progress, Report
from elasticjob_master.core.rendezvous import RoleSize


def job(
    *, status: dict[str, Any] | None = None, autoscaling: dict[str, Any] | None = None, **worker: Any
) -> ElasticJob:
    container = {"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    role = {"replicas": 2, "minReplicas": 1, "template": {"spec": {"containers": [container]}}, **worker}
    spec = {"framework": "jax", "replicaSpecs": {"worker": role}, "autoscaling": autoscaling or {}}
    return msgspec.convert({"metadata": {"name": "j"}, "spec": spec, "status": status or {}}, ElasticJob)


def test_the_operators_word_counts_for_the_size_and_before_it_the_specs() -> None:
    assert view.sizes(job()) == {"worker": RoleSize(1, 2)}
    assert view.sizes(job(status={"replicaStatuses": {"worker": {"desired": 4}}})) == {"worker": RoleSize(1, 4)}


@pytest.mark.parametrize(
    ("worker", "limits", "maximum", "limit"),
    [
        ({"maxReplicas": 5}, {}, 5, "worker.maxReplicas"),
        ({}, {}, 2, "worker.replicas, as maxReplicas is not set,"),
        ({"maxReplicas": 5}, {"cpu": 2}, 4, "autoscaling.resourceLimits (cpu 2)"),
        ({"maxReplicas": 5}, {"cpu": 2, "memory": "3500Mi"}, 3, "autoscaling.resourceLimits (memory 3500Mi)"),
        ({"maxReplicas": 5}, {"gpu": 0}, 5, "worker.maxReplicas"),
    ],
)
def test_the_bounds_of_the_auto_scaler(
    worker: dict[str, Any], limits: dict[str, Any], maximum: int, limit: str
) -> None:
    bounds = view.bounds(job(autoscaling={"resourceLimits": limits}, **worker), "worker")
    assert (bounds.minimum, bounds.maximum, bounds.limit) == (1, maximum, limit)


def test_resources_set_by_a_plan_count_in_place_of_the_templates() -> None:
    status = {"replicaStatuses": {"worker": {"desired": 2, "resources": {"cpu": "1"}}}}
    bounds = view.bounds(job(status=status, autoscaling={"resourceLimits": {"cpu": 3}}, maxReplicas=5), "worker")
    assert bounds.maximum == 3


def test_a_role_that_is_not_to_be_scaled_is_not_scaled() -> None:
    enabled = {"enabled": True, "cooldownSeconds": 5}
    plain = view.scaling(job(autoscaling=enabled), plan_unfinished=False)
    fixed = view.scaling(job(autoscaling=enabled, autoScale=False), plan_unfinished=False)
    assert plain is not None
    assert fixed is not None
    assert (plain.enabled, fixed.enabled, plain.cooldown) == (True, False, 5.0)


def test_leaving_pods_have_the_plans_time_or_their_roles() -> None:
    def plan(name: str, **spec: Any) -> ScalePlan:
        body = {"metadata": {}, "spec": {"jobName": "j", **spec}, "status": {"drainingPods": [name]}}
        return msgspec.convert(body, ScalePlan)

    plans = [plan("j-worker-1"), plan("j-worker-2-3", drainSeconds=7), plan("j-worker-0", drainSeconds=0)]
    found = view.draining(job(drainSeconds=20), plans)
    assert found == {"j-worker-1": 20.0, "j-worker-2-3": 7.0, "j-worker-0": 0.0}


def test_a_role_whose_name_begins_with_anothers_has_its_own_time_to_leave() -> None:
    roles = {name: {"drainSeconds": seconds, "template": {}} for name, seconds in (("worker", 20), ("worker-big", 90))}
    both = msgspec.convert(
        {"metadata": {"name": "j"}, "spec": {"framework": "custom", "replicaSpecs": roles}}, ElasticJob
    )
    body = {"metadata": {}, "spec": {"jobName": "j"}, "status": {"drainingPods": ["j-worker-0", "j-worker-big-0"]}}
    found = view.draining(both, [msgspec.convert(body, ScalePlan)])
    assert found == {"j-worker-0": 20.0, "j-worker-big-0": 90.0}


def test_progress_is_written_for_programs_and_for_people() -> None:
    progress = Progress()
    assert view.progress(progress, 0.0) is None
    progress.report("a", Report(1, 5, 10, 1234.0, 1.0, {"loss": 0.123456789}), now=0.0, wall=0.0)
    progress.report("a", Report(1, 6, 10, 1234.0, 1.0), now=1.0, wall=1.5)
    assert view.progress(progress, 1.0) == {
        "step": 6,
        "totalSteps": 10,
        "samplesPerSecond": 1230.0,
        "etaSeconds": 8,
        "lastReportTime": "1970-01-01T00:00:01Z",
        "metrics": {"loss": 0.123457},
        "rate": "1.2k/s",
        "steps": "6/10",
    }
