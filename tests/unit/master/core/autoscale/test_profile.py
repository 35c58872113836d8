"""Tests profiles, which record the needs of earlier jobs.

They cover the stored form, the bounds on invalid values, and the first plan of a job.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from elasticjob_api.limits import MAX_ROLES
from elasticjob_master.core.autoscale.decision import Bounds, ScalingInputs, UnwrittenRole
from elasticjob_master.core.autoscale.job_scaling import JobScaling, RoleResources
from elasticjob_master.core.autoscale.measurements import Measurement, adjusted_to, with_measurement
from elasticjob_master.core.autoscale.profile import (
    MOST_CHARACTERS,
    MOST_JOBS,
    ProfiledJob,
    RoleUse,
    UnreadableProfile,
    first_plan,
    latest_size,
    most_used,
    profiled,
    read_profile,
    write_profile,
)
from elasticjob_master.core.autoscale.scaling_memory import MeasuredRate, RolePeaks, ScalingMemory

from bench.autoscale_worlds import World
from tests.support.bare_job import BareJob
from tests.support.master.scaling_memories import memory_of

MIB = 1024**2
USES = {"worker": RoleUse(1.63, 1000 * MIB), "ps": RoleUse(0.42, 300 * MIB)}


def profiled_job(number: int = 1, **more: Any) -> ProfiledJob:
    fields = {"size": 8, "rate": 800.0, "objective": "Efficiency 0.5", "roles": USES, **more}
    return ProfiledJob(
        job="digits", uid=f"u{number}", at="2026-11-20T10:00:00Z", role="worker", **fields
    )


# --- how it is kept


def test_the_last_jobs_are_kept_one_line_each_and_a_job_only_once() -> None:
    text = ""
    for number in range(9):
        text = write_profile(read_profile(text), profiled_job(number, size=number))
    assert [job.uid for job in read_profile(text)] == [f"u{number}" for number in range(4, 9)]
    text = write_profile(read_profile(text), profiled_job(8, size=12))
    assert [job.size for job in read_profile(text)] == [4, 5, 6, 7, 12]
    assert len(text.splitlines()) == MOST_JOBS
    assert json.loads(text.splitlines()[-1])["roles"]["ps"] == {"cpu": 0.42, "memory": 300 * MIB}


GOOD = json.loads(write_profile((), profiled_job()))


@pytest.mark.guarantee("wrong-profile")
@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 100_000,
        "[" * 10_000,
        '{"job":' * 2_000,
        "\x00",
        "null",
        "x" * (MOST_CHARACTERS + 1),
        "{}\n" * 100,
        json.dumps({**GOOD, "more": {"a": [[[[]]]]}}),
        json.dumps({**GOOD, "size": -1}),
        json.dumps({**GOOD, "size": 10**9}),
        json.dumps({**GOOD, "size": "8"}),
        json.dumps({**GOOD, "rate": 1e300}),
        json.dumps({**GOOD, "rate": float("nan")}),
        json.dumps({**GOOD, "rate": float("inf")}),
        json.dumps({**GOOD, "job": "a\nb"}),
        json.dumps({**GOOD, "job": "a\n"}),
        json.dumps({**GOOD, "uid": "u\n"}),
        json.dumps({**GOOD, "objective": "0.5\n"}),
        json.dumps({**GOOD, "job": "a" * 300}),
        json.dumps({**GOOD, "at": "never"}),
        json.dumps({**GOOD, "roles": {"worker": {"cpu": -1}}}),
        json.dumps({**GOOD, "roles": {"worker": {"cpu": 1e9}}}),
        json.dumps({**GOOD, "roles": {"worker": {"memory": 2**60}}}),
        json.dumps({**GOOD, "roles": {"../x": {}}}),
        json.dumps({**GOOD, "roles": {f"r{n}": {} for n in range(MAX_ROLES + 1)}}),
        json.dumps({**GOOD, "roles": {"worker": {"nvidia.com/gpu": 1}}}),
    ],
)
def test_what_no_master_has_written_is_ignored_with_a_reason(text: str) -> None:
    with pytest.raises(UnreadableProfile, match=r"."):
        read_profile(text)


def test_the_profile_has_the_used_resources_and_the_settled_size_of_a_job() -> None:
    peaks = {
        "worker": RolePeaks(cpu=60.0, window_cpu=1.634, memory=1000 * MIB),
        "gone": RolePeaks(window_cpu=1.0, memory=1),
    }
    scaling = JobScaling(
        role="worker", desired=8, bounds=Bounds(1, 16), roles={"worker": RoleResources()}
    )
    memory = memory_of(rates={4: 400.0, 8: 743.92}, settled=8, peaks=peaks)
    found = profiled(memory, scaling, job="digits", uid="u1", at="2026-11-20T10:00:00Z")
    assert found == profiled_job(rate=743.9, roles={"worker": RoleUse(1.63, 1000 * MIB)})
    assert profiled(ScalingMemory(), scaling, job="digits", uid="u1", at="") is None, (
        "it has shown nothing yet"
    )


def test_of_several_jobs_the_most_that_any_used_counts_and_the_size_of_the_latest() -> None:
    jobs = (
        profiled_job(1, size=4, roles={"worker": RoleUse(3.0, 10)}),
        profiled_job(2, size=8, roles={"worker": RoleUse(1.0, 20)}),
        profiled_job(3, size=0),
    )
    assert most_used(jobs)["worker"] == RolePeaks(window_cpu=3.0, memory=1000 * MIB)
    latest = latest_size(jobs, "worker")
    assert latest is not None
    assert latest.uid == "u2"
    assert latest_size(jobs, "chief") is None


# --- with what a job begins

BARE = {"worker": UnwrittenRole((0,)), "ps": UnwrittenRole((0,))}


def begun(
    *jobs: ProfiledJob,
    high: int = 64,
    unwritten: Any = BARE,
    objective: str = "Efficiency 0.5",
    **more: Any,
) -> Any:
    now = ScalingInputs(role="worker", size=1, bounds=Bounds(1, high), unwritten=unwritten, **more)
    return first_plan(
        most_used(jobs), latest_size(jobs, "worker"), ScalingMemory(), now, objective=objective
    )


def test_the_first_plan_has_the_size_and_resources_of_all_roles_and_gives_the_numbers() -> None:
    plan = begun(profiled_job())
    assert (plan.size, sorted(plan.replace)) == (8, [("ps", 0), ("worker", 0)])
    assert plan.resources == {
        "worker": {"cpu": 2.0, "memory": 1536 * MIB},
        "ps": {"cpu": 0.6, "memory": 512 * MIB},
    }
    assert plan.reason.startswith(
        "as digits needed on 2026-11-20T10:00:00Z, which settled at 8 with 800.0 samples/s: begin "
        "with 8; ps requests"
    )


@pytest.mark.guarantee("wrong-profile")
def test_what_is_written_stands_above_the_profile() -> None:
    plan = begun(profiled_job(), unwritten={}, high=5)
    assert (plan.size, plan.resources, plan.replace) == (5, {}, ())
    assert plan.memory.search.settled_size is None, "at another size nothing can be compared"
    cramped = begun(profiled_job(), free_resources={"cpu": 10.0})
    assert cramped.resources == {}, "8 x 2 cores are more than resourceLimits leave"
    assert begun() is None


def after_windows(memory: ScalingMemory, *rates: float, size: int = 8) -> ScalingMemory:
    """Return the memory after these windows, the first of which shows the setting."""
    for rate in rates:
        memory = adjusted_to(memory, size=size, setting="ps 1 x 0.6")
        memory = with_measurement(memory, size, Measurement(rate))
    return memory


def test_a_job_that_trains_as_fast_as_the_earlier_one_stays_at_its_size() -> None:
    begin = begun(profiled_job(inherited=2), setting="ps 1 x 0.4").memory
    memory = after_windows(begin, 790.0, 810.0)
    assert (memory.search.settled_size, memory.search.inherited) == (8, 3)
    assert memory.rates.by_size[8].weight == 3, "the earlier job's rate counts as one window"


def test_a_job_that_trains_otherwise_searches_and_so_does_one_in_five() -> None:
    begin = begun(profiled_job(), setting="ps 1 x 0.4").memory
    assert after_windows(begin, 500.0).search.settled_size == 8, "one window may be noise"
    other = after_windows(begin, 500.0, 500.0)
    assert (other.search.settled_size, other.search.inherited) == (None, 0)
    assert other.rates.by_size == {8: MeasuredRate(500.0, 2)}
    elsewhere = after_windows(begin, 400.0, size=4)
    assert elsewhere.search.settled_size is None, "another actor chose another size"
    for changed in ({"inherited": MOST_JOBS - 1}, {"objective": "0.9"}, {"rate": 0.0}):
        assert begun(profiled_job(**changed)).memory.search.settled_size is None
        assert begun(profiled_job(**changed)).size == 8, "where to begin it is nevertheless"


# --- the whole auto-scaler

LIMITS = {"cpu": 24.0, "memory": 64.0 * 1024 * MIB}


def a_job(*, profile: tuple[ProfiledJob, ...] = ()) -> BareJob:
    job = BareJob(World("smooth", "bare", lambda size: 100.0 * size, 1, 64), limits=LIMITS)
    job.autoscaler.profile = profile
    job.begin()
    job.run(4.0)
    return job


def learned_from(job: BareJob) -> tuple[ProfiledJob, ...]:
    found = profiled(
        job.autoscaler.memory, job.scaling, job="digits", uid="u", at="2026-11-20T10:00:00Z"
    )
    assert found is not None
    return read_profile(write_profile((), found))


def test_the_second_job_of_a_profile_begins_where_the_first_one_has_settled() -> None:
    first = a_job()
    assert [decision.size for decision in first.decisions][-1] == 11
    second = a_job(profile=learned_from(first))
    [only] = second.decisions
    assert (second.at, only.size) == ([0.0], 11)
    assert only.resources == first.decisions[0].resources
    assert second.autoscaler.memory.search.settled_size == 11
    assert second.outcome.first_hour > first.outcome.first_hour


@pytest.mark.guarantee("wrong-profile")
def test_a_profile_that_is_wrong_this_time_costs_a_search_and_no_more() -> None:
    wrong = ProfiledJob(
        job="digits",
        uid="u",
        at="2026-11-20T10:00:00Z",
        role="worker",
        size=3,
        rate=1e6,
        objective="Efficiency 0.5",
        roles=USES,
    )
    job = a_job(profile=(wrong,))
    sizes = [decision.size for decision in job.decisions]
    assert (sizes[0], sizes[-1]) == (3, 11)
    assert len(sizes) <= 4
    assert job.autoscaler.memory.search.settled_size == 11


def test_a_job_of_which_something_is_measured_is_not_begun_again() -> None:
    first = a_job()
    job = BareJob(World("smooth", "bare", lambda size: 100.0 * size, 1, 64), limits=LIMITS)
    job.run(0.1)
    made = len(job.decisions)
    job.autoscaler.profile = learned_from(first)
    job.begin()
    assert len(job.decisions) == made
