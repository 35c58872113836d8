"""Tests the auto-scaler in a controller: measurements, requested plans, and the plans' results."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.scaleplan import ScalePlan, ScalePlanSpec
from elasticjob_api.step_report import StepReport
from elasticjob_api.v1 import job_pb2
from elasticjob_dashboard.data import page_data
from elasticjob_dashboard.page import Page
from elasticjob_master import scaling_control
from elasticjob_master.config import Config
from elasticjob_master.controller import Controller
from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision
from elasticjob_master.core.autoscale.job_scaling import (
    ContainerResources,
    EndedPlan,
    JobScaling,
    RoleResources,
)
from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS
from elasticjob_master.core.rendezvous.advance import advance
from elasticjob_master.core.rendezvous.events import StateRestored
from elasticjob_master.core.rendezvous.members import Identity, Member, Usage
from elasticjob_master.job_facts import ObservedPlan, PlanFacts
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.persistence.store import NoStore
from elasticjob_master.persistence.stored_state import EncodedState
from elasticjob_master.server.answers import stored_answers
from elasticjob_master.server.autoscaling import autoscaling_at
from elasticjob_master.server.metrics import CallCounts, Metrics
from msgspec.structs import replace as replaced

from tests.support.master.scaling_memories import memory_of

COOLDOWN = 10.0
GIB = 1024**3


class Job:
    """A controller whose world trains, and the plans it asks for."""

    def __init__(self, *, members: int, desired: int) -> None:
        self.controller = Controller(framework="jax")
        self.scaling = self.controller.scaling
        uids = tuple(str(index) for index in range(members))
        restored = tuple(
            Member(
                Identity(f"j-worker-{index}", uid, "worker", index),
                index + 1,
                disconnected_since=None,
                process_round=1,
                started=True,
            )
            for index, uid in enumerate(uids)
        )
        state = self.controller.rendezvous
        advance(state, 0.0, StateRestored(restored, "training", 1, uids))
        advance(state, 0.0)
        self.uids = uids
        self.second = 0
        self.total_steps = 0
        self.asked: list[ScalingDecision] = []
        self.scaling.job_scaling = JobScaling(
            role="worker",
            desired=desired,
            bounds=Bounds(1, 16),
            enabled=True,
            cooldown=COOLDOWN,
            indices=frozenset(range(desired)),
        )

    def limit_memory(self, limit: int, *, cpu: float = 1.0) -> None:
        """Give every member this limit in bytes and these cores; the size may not change."""
        assert self.scaling.job_scaling is not None
        roles = {"worker": RoleResources(ContainerResources(cpu, limit), most_memory=64 * GIB)}
        size = self.scaling.job_scaling.desired
        self.scaling.job_scaling = replace(
            self.scaling.job_scaling, roles=roles, bounds=Bounds(size, size)
        )

    def use(self, *, memory: int, cpu: float = 0.9) -> None:
        """Let every member use these bytes and cores from now on."""
        for member in self.controller.members:
            member.usage = Usage(cpu_cores=cpu, memory_bytes=memory)

    def train(self, start: int, end: int, rate: float) -> None:
        """Let the job train from second `start` to second `end` with `rate` samples/s."""
        for second in range(start, end):
            self.train_step(second, rate)

    def train_step(self, second: int, samples: float, *, seconds: float = 1.0) -> None:
        """Let every member report a step of this duration, with this sum of samples."""
        self.second = second
        for uid in self.uids:
            report = StepReport(
                round=1,
                step=second,
                total_steps=self.total_steps,
                samples=samples / len(self.uids),
                seconds=seconds,
            )
            self.controller.progress.add_report(uid, report, now=float(second), wall=float(second))
        before = self.scaling.wish
        self.scaling.tick(self.controller, float(second))
        wish = self.scaling.wish
        if wish is not None and wish is not before:
            self.asked.append(wish.decision)

    def create_plan(self) -> None:
        assert self.scaling.wish is not None
        self.scaling.plan_created(self.scaling.wish)

    def fail_to_create_plan(self) -> None:
        assert self.scaling.wish is not None
        self.scaling.plan_not_created(self.controller, self.scaling.wish)


async def test_a_time_in_which_the_master_was_suspended_is_in_no_measurement() -> None:
    """A machine that sleeps stops the training and the master alike."""
    job = Job(members=2, desired=2)
    job.train(0, 5, 100.0)
    job.controller.suspended(20.0)
    job.train(25, 27, 100.0)
    assert job.asked == [], "no size is chosen by what was trained while nothing ran"
    job.train(27, 37, 100.0)
    assert job.scaling.autoscaler.memory.rates.mean(2) == pytest.approx(100.0)


def test_a_reached_size_is_measured_and_one_plan_is_asked_for_at_a_time() -> None:
    job = Job(members=2, desired=2)
    job.train(0, 5, 100.0)
    assert job.asked == []
    job.train(5, 40, 100.0)
    assert [decision.size for decision in job.asked] == [8]
    assert job.scaling.autoscaler.memory.rates.mean(2) == pytest.approx(100.0)
    job.fail_to_create_plan()
    job.train(40, 42, 100.0)
    assert len(job.asked) == 2, "a plan that could not be made is asked for again"
    job.create_plan()
    assert job.scaling.autoscaler.memory.search.requested_size == 8


@pytest.mark.guarantee("resources-changed-in-place")
@pytest.mark.parametrize("end_is_seen_first", [False, True])
def test_memory_that_was_changed_in_place_is_measured_before_the_next_plan(
    end_is_seen_first: bool,
) -> None:
    job = Job(members=2, desired=2)
    job.limit_memory(1 * GIB)
    job.use(memory=int(0.95 * GIB))
    job.train(0, 12, 100.0)
    [more] = job.asked
    job.create_plan()
    given = int(more.resources["worker"]["memory"])
    if not end_is_seen_first:
        job.limit_memory(given)
    job.scaling.plan_ended(
        EndedPlan(number=1, phase="Succeeded", requested_size=None, reached_size=2, message="")
    )
    job.train(12, 14, 100.0)
    job.limit_memory(given)
    job.train(14, 23, 100.0)
    assert job.asked == [more], "what was measured with the old memory says nothing about the new"
    job.train(23, 60, 100.0)
    assert job.asked == [more], "it is enough"
    job.use(memory=int(0.95 * given))
    job.train(60, 90, 100.0)
    assert len(job.asked) == 2, "it is no longer enough"


def a_checkpoint_every_half_hour(second: int) -> tuple[float, int]:
    """A member that uses a fifth of its memory, and more than two thirds for 30 s now and then."""
    return 6.0, int(5.6 * GIB) if second % 1800 >= 1770 else int(1.6 * GIB)


def an_evaluation_every_40_minutes(second: int) -> tuple[float, int]:
    """A member that uses less than one of its 8 cores, but six of them for 2 of 40 minutes."""
    return 6.0 if second % 2400 >= 2280 else 0.8, int(6 * GIB)


@pytest.mark.guarantee("resources-changed-in-place")
@pytest.mark.parametrize("use", [a_checkpoint_every_half_hour, an_evaluation_every_40_minutes])
def test_what_only_a_phase_of_the_training_needs_is_not_taken_away(
    use: Callable[[int], tuple[float, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(members=2, desired=2)
    job.limit_memory(8 * GIB, cpu=8.0)
    assert job.scaling.job_scaling is not None
    job.scaling.job_scaling = replace(job.scaling.job_scaling, cooldown=300.0)
    monkeypatch.setattr(scaling_control, "time", SimpleNamespace(time=lambda: 1e9 + job.second))
    for second in range(0, 3 * 3600, 10):
        cores, used = use(second)
        job.use(memory=used, cpu=cores)
        job.train_step(second, 1000.0, seconds=10.0)
        taken = [decision.reason for decision in job.asked if decision.resources]
        assert not taken
    assert job.scaling.autoscaler.memory.search.settled_size == 2, (
        "it has measured and could have decided"
    )


def test_nothing_is_asked_for_while_a_plan_is_unfinished_or_scaling_is_off() -> None:
    for plan_unfinished, enabled in ((True, True), (False, False)):
        job = Job(members=2, desired=2)
        assert job.scaling.job_scaling is not None
        job.scaling.job_scaling = replace(
            job.scaling.job_scaling, plan_unfinished=plan_unfinished, enabled=enabled
        )
        job.train(0, 30, 100.0)
        assert job.asked == []
        assert 2 in job.scaling.autoscaler.memory.rates.by_size


def test_members_that_stay_missing_while_the_others_train_are_given_up() -> None:
    job = Job(members=2, desired=4)
    job.train(0, int(THRESHOLDS.pause_seconds), 100.0)
    assert job.asked == []
    assert job.scaling.autoscaler.memory.rates.by_size == {}, (
        "an incomplete world says nothing about its size"
    )
    job.train(int(THRESHOLDS.pause_seconds), int(THRESHOLDS.pause_seconds) + 2, 100.0)
    [decision] = job.asked
    assert decision.remove == (2, 3)
    assert decision.memory.plans.reached_size == 2


def test_the_end_of_a_plan_is_learned_from_once() -> None:
    job = Job(members=2, desired=2)
    job.scaling.use_number(3)
    unmet = EndedPlan(
        number=3, phase="PartiallySucceeded", requested_size=8, reached_size=5, message="no room"
    )
    for _ in range(2):
        job.scaling.plan_ended(unmet)
    assert (
        job.scaling.autoscaler.memory.plans.reached_size,
        job.scaling.autoscaler.memory.plans.pause_seconds,
    ) == (5, 900.0)
    job.scaling.plan_ended(replace(unmet, number=2, reached_size=1))
    assert job.scaling.autoscaler.memory.plans.reached_size == 5, "an older plan changes nothing"
    job.scaling.use_number(4)
    job.scaling.plan_ended(replace(unmet, number=4, requested_size=None))
    assert job.scaling.autoscaler.memory.resources.retry_at > 0
    job.scaling.use_number(5)
    job.scaling.plan_ended(
        EndedPlan(number=5, phase="Succeeded", requested_size=8, reached_size=8, message="")
    )
    assert job.scaling.autoscaler.memory.plans.reached_size is None


def test_a_plan_that_is_found_counts_as_asked_for() -> None:
    job = Job(members=2, desired=2)
    job.scaling.autoscaler.memory = memory_of(asked=4)
    plan = ScalePlan(metadata=ObjectMeta(name="p"), spec=ScalePlanSpec(job_name="j"))
    found = ObservedPlan(plan, 7, requested_size=2)
    job.scaling.observe(job.controller, PlanFacts((found,), scaling=job.scaling.job_scaling))
    search = job.scaling.autoscaler.memory.search
    assert (job.scaling.last_number, search.requested_size, search.plans) == (7, 2, 1)


# --- published reasons


def known(job: Job) -> job_pb2.Autoscaling:
    return autoscaling_at(job.controller, float(job.second), wall=1e9 + job.second)


def test_of_a_job_without_a_role_to_scale_nothing_is_told() -> None:
    job = Job(members=2, desired=2)
    job.scaling.job_scaling = None
    assert known(job) == job_pb2.Autoscaling(decision_seconds=-1.0)


@pytest.mark.guarantee("auto-scaler-explains-itself")
def test_measurements_next_decision_and_reason_are_published_at_every_moment() -> None:
    job = Job(members=2, desired=2)
    waiting = known(job)
    assert (waiting.enabled, waiting.role, waiting.size) == (True, "worker", 2)
    assert (waiting.minimum, waiting.maximum, waiting.limit) == (1, 16, "maxReplicas")
    assert waiting.waiting_for == "the first step of the present world"
    assert (waiting.reason, waiting.decision_seconds, list(waiting.sizes)) == ("", -1.0, [])
    job.train(0, 5, 100.0)
    measuring = known(job)
    assert (measuring.waiting_for, measuring.window_part, measuring.decision_seconds) == (
        "",
        0.4,
        6.0,
    )
    job.train(5, 12, 100.0)
    [grow] = job.asked
    creating = known(job)
    assert creating.waiting_for == "the end of the present ScalePlan"
    assert (creating.reason, creating.decision_seconds) == (grow.reason, -1.0)
    assert creating.decided > 0
    [size] = creating.sizes
    assert (size.size, size.expected) == (2, 0.0)
    assert size.samples_per_second == pytest.approx(100.0)


def test_a_finish_time_is_compared_with_the_remaining_reported_steps() -> None:
    job = Job(members=2, desired=2)
    assert job.scaling.job_scaling is not None
    objective = Objective("Deadline", finish_at=time.time() + 10_000.0)
    job.scaling.job_scaling = replace(job.scaling.job_scaling, objective=objective)
    job.train(0, 12, 100.0)
    assert "the training reports no total of steps, so it is as Efficiency" in known(job).objective
    [unknown] = job.asked
    job.fail_to_create_plan()
    job.total_steps = 20_012
    job.train(12, 13, 100.0)
    told = known(job)
    assert "needs 20" in told.objective, (
        "20,000 steps of 100 samples are left, and 10,000 seconds less two rescales"
    )
    assert told.sizes[0].means.endswith("after finishTime")
    assert "ends " in job.asked[-1].reason
    assert "ends " not in unknown.reason


def test_a_decision_that_changes_nothing_is_published_with_its_reason() -> None:
    job = Job(members=4, desired=4)
    job.scaling.autoscaler.memory = memory_of(rates={2: 100.0}, asked=4, moves=8)
    job.train(0, 12, 150.0)
    assert job.asked == []
    assert "measuring 4 again" in known(job).reason
    assert [size.size for size in known(job).sizes if size.samples_per_second] == [2, 4]
    assert all(size.expected for size in known(job).sizes)


@pytest.mark.guarantee("auto-scaler-explains-itself")
def test_why_a_size_was_settled_stays_known_while_nothing_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = Job(members=2, desired=2)
    assert job.scaling.job_scaling is not None
    job.scaling.job_scaling = replace(
        job.scaling.job_scaling, bounds=Bounds(2, 2, "worker.maxReplicas")
    )
    caplog.set_level("INFO")
    job.train(0, 12, 100.0)
    settled = known(job)
    assert settled.settled_size == 2
    assert "worker.maxReplicas allows no other size" in settled.reason
    job.train(12, 100, 101.0)
    assert (known(job).reason, known(job).decided) == (settled.reason, settled.decided)
    assert known(job).waiting_for == "", "it goes on measuring"
    assert caplog.text.count("auto-scaling: ") == 1


def test_while_it_is_off_its_measurements_are_published() -> None:
    job = Job(members=2, desired=2)
    assert job.scaling.job_scaling is not None
    job.scaling.job_scaling = replace(job.scaling.job_scaling, enabled=False)
    job.train(0, 30, 100.0)
    off = known(job)
    assert (off.enabled, off.waiting_for, off.decision_seconds, off.reason) == (False, "", -1.0, "")
    assert [size.size for size in off.sizes] == [2]


def test_what_is_missing_for_a_measurement_is_told() -> None:
    job = Job(members=2, desired=4)
    job.train(0, 20, 100.0)
    assert known(job).waiting_for == "4 members, of which 2 are available"
    job.controller.members.disconnected.add("0")
    assert known(job).waiting_for == "1 members to connect again"
    silent = Job(members=2, desired=2)
    silent.train(0, 20, 0.0)
    assert known(silent).waiting_for == "samples, of which the training reports none"


def test_a_pause_after_pods_that_did_not_become_ready_is_published_until_it_ends() -> None:
    job = Job(members=2, desired=2)
    job.scaling.autoscaler.memory = memory_of(
        had=2, retry_at=1e9 + 60, resources_at=1e9 + 30, costs=(12.0,)
    )
    pauses = known(job)
    assert (pauses.had_size, pauses.retry_time, pauses.resources_retry_time) == (
        2,
        1e9 + 60,
        1e9 + 30,
    )
    assert pauses.rescale_seconds == 12.0
    job.second = 60
    over = known(job)
    assert (over.had_size, over.retry_time, over.resources_retry_time) == (0, 0.0, 0.0)


def test_what_a_role_has_used_and_what_became_of_its_change_is_told() -> None:
    job = Job(members=2, desired=2)
    job.limit_memory(8 * GIB)
    job.use(memory=GIB)
    job.train(0, 5, 100.0)
    memory = job.scaling.autoscaler.memory
    peaks = replaced(memory.resources.peaks["worker"], keeps_resources=True)
    job.scaling.autoscaler.memory = memory.with_peaks("worker", peaks)
    [role] = known(job).roles
    assert (role.role, role.cpu_cores, role.memory_bytes) == ("worker", 0.9, GIB)
    assert role.remark == "was lowered and needed it: has it back, and is not lowered again"


@pytest.mark.guarantee("auto-scaler-explains-itself")
def test_the_dashboard_has_what_a_query_shows() -> None:
    job = Job(members=4, desired=4)
    served = shown(job)["autoscaling"]
    assert (served["enabled"], served["settledSize"], served["sizes"], served["roles"]) == (
        True,
        0,
        [],
        [],
    )
    job.scaling.autoscaler.memory = memory_of(rates={2: 100.0}, asked=4, costs=(12.0,))
    job.limit_memory(8 * GIB)
    job.use(memory=GIB)
    job.train(0, 12, 141.0)
    served = shown(job)["autoscaling"]
    told = known(job)
    assert told.best_to
    assert (served["bestFrom"], served["bestTo"], served["reason"]) == (
        told.best_from,
        told.best_to,
        told.reason,
    )
    measured = [size["size"] for size in served["sizes"] if size["samplesPerSecond"]]
    assert measured == [2, 4]
    read = set(
        re.findall(
            r"each\.(\w+)", Page().text.partition("function scaling")[2].partition("\nfunction")[0]
        )
    )
    assert {"tooLarge", "remark"} < read
    assert read <= {*served["sizes"][0], *served["roles"][0]}, "the page reads only what is served"
    assert [each["size"] for each in served["curve"]] == [2, 3, 4]
    assert set(served["curve"][0]) == {"size", "expected", "expectedFrom", "expectedTo"}


@pytest.mark.guarantee("auto-scaler-explains-itself")
def test_the_metrics_say_how_far_the_search_is() -> None:
    job = Job(members=4, desired=4)
    assert sum(autoscaling_metrics(job).values()) == 1.0, "it is enabled; nothing else is known"
    job.scaling.autoscaler.memory = memory_of(rates={2: 100.0}, asked=4, settled=4, costs=(12.0,))
    job.train(0, 12, 141.0)
    told = known(job)
    metrics = autoscaling_metrics(job)
    assert metrics == {
        "elasticjob_autoscaling_enabled": 1.0,
        "elasticjob_autoscaling_settled": 1.0,
        "elasticjob_autoscaling_measured_sizes": 2.0,
        'elasticjob_autoscaling_best_size{bound="lowest"}': told.best_from,
        'elasticjob_autoscaling_best_size{bound="highest"}': told.best_to,
        "elasticjob_rescale_cost_seconds": 12.0,
    }


def shown(job: Job) -> Any:
    """Return what the dashboard reads."""
    config = cast(
        "Config", SimpleNamespace(namespace="n", job_name="j", job_uid="u", standalone=False)
    )
    return json.loads(page_data(stored_answers(job.controller, config)))


def autoscaling_metrics(job: Job) -> dict[str, float]:
    """Return the auto-scaler's metrics, as they are served."""
    writer = StateWriter(NoStore(), lambda: EncodedState(b""))
    text = Metrics(job.controller, writer, CallCounts()).render()[0].decode()
    found = (
        line.rsplit(" ", 1)
        for line in text.splitlines()
        if re.match("elasticjob_(autoscaling|rescale)", line)
    )
    return {name: float(value) for name, value in found}
