"""Every second of a job is counted once, including the time without a master."""

from __future__ import annotations

import msgspec
import pytest
from elasticjob_api.step_report import StepReport
from elasticjob_api.v1 import job_pb2
from elasticjob_master.controller import Controller
from elasticjob_master.core.accounting import (
    SPENT,
    Accounting,
    Activity,
    Moment,
    Resources,
    StoredAccounting,
)
from elasticjob_master.core.rendezvous.events import StateRestored
from elasticjob_master.core.rendezvous.members import Identity
from elasticjob_master.job_facts import JobFacts
from elasticjob_master.monitors.accountant import held, moment
from elasticjob_master.persistence import snapshot
from elasticjob_master.persistence.stored_state import StoredState, decode, encode
from hypothesis import given
from hypothesis import strategies as st

HOUR = 3600.0
_COUNTED = ("waiting", "starting", "training", "stalled", "without_master")
_ALL = (*_COUNTED, "suspended", "finished")


class Job:
    """Drives an account by the clocks of its masters."""

    def __init__(self) -> None:
        self.account = Accounting()
        self.now = 50.0
        self.wall = 1_000_000.0
        self.resources = Resources(2.0, 1.0, 8.0)

    def at(
        self, activity: Activity, seconds: float = 0.0, *, round_: int = 1, **more: object
    ) -> None:
        """Let seconds pass, and start an activity."""
        self.now = self.now + seconds
        self.wall = self.wall + seconds
        self.account.advance(
            self.now,
            self.wall,
            Moment(activity, round_, **more),  # type: ignore[arg-type]
            lambda: self.resources,
        )

    def restarted_after(self, seconds: float) -> None:
        """Continue with the next master, whose monotonic clock differs."""
        stored = msgspec.json.decode(
            msgspec.json.encode(self.account.stored()), type=StoredAccounting
        )
        self.account = Accounting()
        self.account.restore(stored)
        self.now = 7.0
        self.wall = self.wall + seconds

    def spent(self) -> dict[str, float]:
        return {
            what: round(self.account.seconds(what), 2)
            for what in _ALL
            if self.account.seconds(what)
        }


def test_goodput_is_the_share_of_the_time_that_was_training() -> None:
    job = Job()
    job.at("waiting", round_=0)
    job.at("starting", 10)
    job.at("training", 20)
    job.at("starting", 60, round_=2)
    job.at("training", 10, round_=2)
    job.at("finished", 100, round_=2)
    job.at("finished", 500, round_=2)
    assert job.spent() == {"waiting": 10, "starting": 30, "training": 160, "finished": 500}
    assert job.account.total_seconds == 200
    assert job.account.goodput == 160 / 200
    assert job.account.worlds == 2


def test_goodput_is_unknown_before_the_first_reported_step() -> None:
    job = Job()
    job.at("starting")
    job.at("starting", 1000)
    assert job.account.goodput is None


def test_time_without_a_step_before_a_stall_was_detected_is_stalled_time() -> None:
    job = Job()
    job.at("starting")
    job.at("training", 1)
    job.at("training", 100)
    job.at("stalled", 50, stalled_since=job.wall - 10)
    job.at("stalled", 40, stalled_since=job.wall - 60)
    job.at("training", 0)
    assert job.spent() == {"starting": 1, "training": 90, "stalled": 100}


def test_at_most_the_time_since_the_last_pause_becomes_stalled_time() -> None:
    job = Job()
    job.at("training")
    job.at("starting", 30, round_=2)
    job.at("training", 5, round_=2)
    job.at("stalled", 20, round_=2, stalled_since=0.0)
    assert job.spent() == {"starting": 5, "training": 30, "stalled": 20}


@pytest.mark.guarantee("every-second-counted-once")
def test_the_time_without_a_master_is_training_if_the_same_world_still_trains() -> None:
    job = Job()
    job.at("training")
    job.at("training", 100)
    job.restarted_after(30)
    job.at("training", complete=False)
    job.at("training", 5, complete=False)
    job.at("training", 5)
    job.at("training", 5)
    assert job.spent() == {"training": 145}


@pytest.mark.guarantee("every-second-counted-once")
@pytest.mark.parametrize(
    "then", [Moment("starting", 1, False), Moment("training", 2), Moment("waiting", 1)]
)
def test_the_time_without_a_master_is_not_training_if_the_world_has_ended(then: Moment) -> None:
    job = Job()
    job.at("training")
    job.at("training", 100)
    job.restarted_after(30)
    job.at("training", complete=False)
    job.at(then.activity, 6, round_=then.round, complete=then.complete)
    assert job.spent() == {"training": 100, "without_master": 36}


def test_a_killed_master_leaves_unclassified_time_to_the_next_one() -> None:
    job = Job()
    job.at("training")
    job.at("training", 100)
    for _ in range(3):
        job.restarted_after(30)
        job.at("training", complete=False)
        job.at("training", 1, complete=False)
    job.restarted_after(7)
    job.at("training")
    job.at("training", 1)
    assert job.spent() == {"training": 201}
    assert job.account.hours.members == pytest.approx(2 * 201 / HOUR, abs=2 * 5 / HOUR)


def test_suspended_time_lowers_no_goodput_and_costs_no_resources() -> None:
    job = Job()
    job.at("training")
    job.at("suspended", 100)
    hours = job.account.hours
    job.at("suspended", 3)
    job.restarted_after(10 * HOUR)
    job.resources = Resources()
    job.at("waiting")
    job.at("training", 100, round_=2)
    assert job.spent() == {"training": 100, "suspended": 10 * HOUR + 3, "waiting": 100}
    assert job.account.goodput == 0.5
    assert job.account.hours.members <= hours.members + 2 * 5 / HOUR


def test_hours_follow_the_resources_of_each_moment() -> None:
    job = Job()
    job.at("training")
    for _ in range(60):
        job.at("training", 60)
    job.resources = Resources(4.0, 3.0, 0.0)
    for _ in range(60):
        job.at("training", 60)
    assert job.account.hours == pytest.approx((6.0, 4.0, 8.0, 0.0))


def test_a_clock_jump_adds_no_time() -> None:
    job = Job()
    job.at("training")
    job.at("training", 10)
    job.wall -= 1e9
    job.at("training", 10)
    job.restarted_after(0)
    job.at("training")
    job.at("training", 10)
    assert job.spent() == {"training": 30}
    job.restarted_after(1e12)
    job.at("training")
    job.at("training", 10)
    assert job.spent() == {"training": 40}, "a gap of 30,000 years is ignored"


_activities = st.sampled_from(
    ["waiting", "starting", "training", "stalled", "suspended", "finished"]
)
Move = tuple[Activity, float, int, bool, bool, float]
_moves = st.tuples(
    _activities,
    st.floats(0, 1e5),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.floats(0, 2e5),
)


@pytest.mark.guarantee("every-second-counted-once")
@given(st.lists(_moves, max_size=40))
def test_every_second_is_counted_once_in_any_history(
    moves: list[tuple[Activity, float, int, bool, bool, float]],
) -> None:
    job = Job()
    job.at("waiting", round_=0)
    began = job.wall
    for activity, seconds, round_, complete, restart, stalled in moves:
        if restart:
            job.restarted_after(seconds)
        job.at(
            activity,
            0.0 if restart else seconds,
            round_=round_,
            complete=complete,
            stalled_since=job.wall - stalled if activity == "stalled" else None,
        )
        assert all(job.account.seconds(what) >= 0 for what in _ALL)
    # The stored account is rounded to milliseconds.
    assert sum(map(job.account.seconds, _ALL)) == pytest.approx(
        job.wall - began, abs=0.01 * (len(moves) + 1)
    )
    goodput = job.account.goodput
    assert goodput is None or 0 <= goodput <= 1 + 1e-9
    hours = job.account.hours
    assert 0 <= hours.members <= 2 * (job.wall - began) / HOUR + 1e-6


def test_the_account_is_stored_and_an_earlier_version_stored_none() -> None:
    job = Job()
    job.at("training")
    job.at("training", 10)
    before = Controller(framework="jax")
    after = Controller(framework="jax")
    before.accounting = job.account
    snapshot.restore(after, decode(encode(snapshot.take(before, job_uid="u"))))
    assert after.accounting.stored() == before.accounting.stored()
    assert Controller(framework="jax").accounting.stored() == StoredState().accounting


def test_each_hour_costs_the_prices_and_requests_of_its_time_also_across_masters() -> None:
    job = Job()
    job.resources = Resources(members=2, cost=3.0)
    job.at("training")
    job.at("training", HOUR)
    job.resources = Resources(members=2, cost=12.0)  # the members were resized
    job.at("training", 0)
    job.at("starting", 0)
    job.at("starting", HOUR)
    assert job.account.hours.cost == pytest.approx(3 + 12)
    job.restarted_after(HOUR / 2)
    job.at("starting")
    job.at("starting", HOUR / 2)
    assert job.account.hours.cost == pytest.approx(3 + 12 + 6 + 6)
    assert job.account.hours.members == pytest.approx(6)


async def test_a_member_with_resources_of_its_own_costs_these() -> None:
    controller = Controller(framework="jax")
    controller.observe_job(JobFacts(hourly_costs={"worker": 1.0, ("worker", 1): 5.0}))
    for index in range(3):
        controller.register(
            Identity(f"w-{index}", f"u{index}", "worker", index, address="127.0.0.1")
        )
    controller.register(Identity("ps-0", "p0", "ps", 0, address="127.0.0.1"))
    assert held(controller).cost == 1 + 5 + 1


async def test_a_job_trains_from_the_first_step_of_a_world() -> None:
    controller = Controller(framework="jax")

    def seen() -> Activity:
        return moment(controller, stalled_since=None).activity

    assert seen() == "waiting"
    controller.observe_job(JobFacts(suspended=True))
    assert seen() == "suspended"
    controller.observe_job(JobFacts(gpus={"worker": 4, "ps": 1}))
    for index in range(2):
        controller.register(
            Identity(f"w-{index}", f"u{index}", "worker", index, address="127.0.0.1")
        )
    assert held(controller) == Resources(2, 0.0, 8, cost=0)
    controller.restore(StateRestored((), "training", 1, ()), 0)
    assert seen() == "starting"
    controller.progress.add_report("u0", StepReport(1, 1, samples=1, seconds=1), now=1, wall=1)
    assert seen() == "training"
    assert moment(controller, stalled_since=5.0).activity == "stalled"
    controller.restore(StateRestored((), "reforming", 1, ()), 0)
    assert seen() == "starting"
    controller.restore(StateRestored((), "training", 2, ()), 0)
    assert seen() == "starting", "the steps are of the world before"
    controller.restore(StateRestored((), "waiting", 2, (), finished=True), 0)
    assert seen() == "finished"


def test_what_time_is_spent_on_has_a_field_each_in_the_report_and_in_samples() -> None:
    assert list(SPENT) == [field.name for field in job_pb2.TimeSpent.DESCRIPTOR.fields]
