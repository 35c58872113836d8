"""Jobs whose templates request neither CPU nor memory, with the master's real auto-scaler."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from elasticjob_master.core.autoscale.decision import Bounds
from elasticjob_master.core.autoscale.job_scaling import (
    ContainerResources,
    JobScaling,
    RoleResources,
)
from elasticjob_master.core.autoscale.needs import bounds_by_need
from elasticjob_master.core.autoscale.scaling_memory import RolePeaks
from elasticjob_master.core.rendezvous.members import Usage

from bench.autoscale_job import COOLDOWN
from bench.autoscale_worlds import HOUR, World, linear, saturating
from tests.support.bare_job import BareJob
from tests.support.master.scaling_memories import memory_of

MIB = 1024**2
GIB = 1024**3


def world(start: int = 2, *, curve: Any = linear, maximum: int = 64) -> World:
    return World("smooth", "bare", curve, start, maximum)


@pytest.mark.guarantee("unset-resources")
def test_the_first_growth_carries_cpu_and_memory_of_all_roles_in_one_plan() -> None:
    job = BareJob(world(), limits={"cpu": 24.0, "memory": 64.0 * GIB})
    job.run(1.0)
    first, *others = job.decisions
    assert first.size == 8
    assert first.resources == {
        "ps": {"cpu": 0.6, "memory": 512 * MIB},
        "worker": {"cpu": 2.0, "memory": 1536 * MIB},
    }
    assert sorted(first.replace) == [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)], (
        "such pods have no other way"
    )
    assert (
        "worker requests nothing, and a member has used 1.63 cores and at most 1000 MiB: 2 cores"
        in first.reason
    )
    assert job.at[0] <= COOLDOWN
    assert not any(each.resources or each.replace for each in others)
    assert [each.size for each in others] == [11], "(24 cores - 2 servers of 0.6) / 2 cores"
    assert list(job.autoscaler.memory.rates.by_size) == [2, 8, 11], "requests change no rate"


@pytest.mark.guarantee("unset-resources")
def test_the_first_growth_of_a_short_job_carries_cpu_and_memory_too() -> None:
    job = BareJob(world(start=1, maximum=2), limits={}, maximum=True)
    job.total = 2 * COOLDOWN * job.world.rate(1, 0.0)
    job.run(2 * COOLDOWN / HOUR)
    [only] = job.decisions
    assert (only.size, set(only.resources)) == (2, {"ps", "worker"})


def test_what_resource_limits_leave_to_the_other_roles_is_left() -> None:
    job = BareJob(world(), limits={"memory": 6.5 * GIB})
    job.run(1.0)
    assert job.size == (6656 - 2 * 512) // 1536
    assert (
        "autoscaling.resourceLimits.memory, of which a member needs 1536 MiB"
        in job.decisions[0].reason
    )


def test_a_job_that_does_not_grow_gets_its_requests_when_it_has_settled_if_that_pays() -> None:
    fixed = World("smooth", "fixed", linear, 2, 2, minimum=2)
    job = BareJob(fixed, limits={}, maximum=True)
    job.run(2.0)
    [only] = job.decisions
    assert (only.size, set(only.resources)) == (None, {"ps", "worker"})
    assert job.autoscaler.memory.search.settled_size == 2, "it stays settled"
    costly = BareJob(dataclasses.replace(fixed, rescale=7200.0), limits={}, maximum=True)
    costly.autoscaler.memory = memory_of(costs=(7200.0,))
    costly.run(2.0)
    assert not costly.decisions, "4 hours of a day are more than it is worth"


@pytest.mark.guarantee("unset-resources")
def test_a_failed_plan_is_not_repeated_for_an_hour_and_the_job_grows_without_it() -> None:
    job = BareJob(world(), limits={"cpu": 24.0})
    job.refuses = True
    job.run(4.0)
    asked = [at for at, each in zip(job.at, job.decisions, strict=True) if each.resources]
    assert all(later - earlier >= HOUR for earlier, later in itertools.pairwise(asked)), asked
    assert len(asked) <= 4
    assert job.size == 11


def test_until_its_use_is_known_a_job_without_max_replicas_stays_and_says_so() -> None:
    scaling = JobScaling(
        role="worker",
        desired=2,
        bounds=Bounds(1, 10_000, by_need=True),
        roles={
            "worker": RoleResources(desired=2, indices=frozenset({0, 1})),
            "ps": RoleResources(desired=1, indices=frozenset({0})),
        },
        free_resources={"cpu": 16.0},
    )
    used = RolePeaks(cpu=9.0, window_cpu=1.5, memory=GIB)
    for peaks, role in (({}, "worker and ps"), ({"worker": used}, "ps"), ({"ps": used}, "worker")):
        unknown = bounds_by_need(scaling, peaks)
        assert (unknown.maximum, unknown.limit_is_temporary) == (2, True)
        assert f"a member of {role} needs" in unknown.limit
        assert "not measured yet" in unknown.limit
    known = bounds_by_need(scaling, {"worker": used, "ps": used})
    assert (known.maximum, known.limit_is_temporary) == (7, False)


@pytest.mark.guarantee("unset-resources")
@pytest.mark.parametrize("written", [ContainerResources(cpu=1.0), ContainerResources(memory=GIB)])
def test_what_a_template_says_is_never_overridden(written: ContainerResources) -> None:
    assert not RoleResources(written).is_unwritten
    scaling = JobScaling(
        role="worker",
        desired=2,
        bounds=Bounds(1, 16),
        roles={"worker": RoleResources(written, desired=2)},
        free_resources={"cpu": 4.0, "memory": 4.0 * GIB},
    )
    assert (
        bounds_by_need(scaling, {"worker": RolePeaks(cpu=9.0, window_cpu=9.0, memory=GIB)})
        == scaling.bounds
    )


@pytest.mark.guarantee("unset-resources")
def test_a_burst_at_the_start_requests_no_cpu_and_later_memory_peaks_kill_no_member() -> None:
    class Bursting(BareJob):
        def uses(self, role: str) -> Usage:
            if self.now < 45:
                return Usage(cpu_cores=60.0, memory_bytes=900 * MIB)  # compilation, on an idle node
            if self.now > 2 * HOUR:
                return Usage(
                    cpu_cores=1.0, memory_bytes=4000 * MIB
                )  # an evaluation that comes late
            return Usage(cpu_cores=1.0, memory_bytes=900 * MIB)

    job = Bursting(world(curve=saturating(0.02)), limits={"cpu": 40.0})
    job.run(4.0)
    assert job.given["worker"]["cpu"] == 1.2
    assert sum(bool(each.resources) for each in job.decisions) <= 4, "no storm of plans"
