"""Progress, discovery, state and quantities of the master."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from elasticjob_api.quantity import parse_quantity
from elasticjob_master.core import stored_state
from elasticjob_master.core.autoscale.container_resources import pod_requests
from elasticjob_master.core.progress import Progress, Report, format_rate, format_steps
from elasticjob_master.core.rendezvous.host_discovery import HostList, next_host_list
from elasticjob_master.core.rendezvous.members import Identity, Members
from hypothesis import given
from hypothesis import strategies as st


def present(*indices: int) -> Members:
    members = Members()
    for index in indices:
        member = members.add(
            Identity(f"j-worker-{index}", f"u{index}", "worker", index, 0, f"10.0.0.{index}", slots=2), 0.0
        )
        members.set_disconnected(member, None)
    return members


# --- discovery


def test_the_list_is_in_the_order_of_joining_in_horovods_grammar() -> None:
    hosts = next_host_list(HostList(), present(1, 0), role="worker", settled=True)
    assert hosts.text() == "j-worker-1:2\nj-worker-0:2\n"
    assert hosts.version == 1


def test_nothing_is_published_while_a_world_forms_or_when_nothing_changes() -> None:
    first = next_host_list(HostList(), present(0), role="worker", settled=True)
    assert next_host_list(first, present(0, 1), role="worker", settled=False) is first
    assert next_host_list(first, present(0), role="worker", settled=True) is first


def test_suspected_draining_and_finished_members_are_no_hosts() -> None:
    members = present(0, 1, 2, 3)
    states = list(members)
    members.set_disconnected(states[0], 1.0)
    states[1].draining_since = 1.0
    states[2].succeeded = True
    assert [h.name for h in next_host_list(HostList(), members, role=None, settled=True).hosts] == ["j-worker-3"]


def test_no_list_replaces_every_host_of_the_last() -> None:
    before = next_host_list(HostList(), present(0, 1), role="worker", settled=True)
    members = present(0, 1, 2, 3)
    for member in list(members)[:2]:
        member.draining_since = 1.0
    after = next_host_list(before, members, role="worker", settled=True)
    assert {h.name for h in after.hosts} & {h.name for h in before.hosts}
    then = next_host_list(after, members, role="worker", settled=True)
    assert [h.name for h in then.hosts] == ["j-worker-2", "j-worker-3"]


# --- progress


def test_the_rate_is_the_sum_over_members_and_a_burst_counts_as_the_time_it_stands_for() -> None:
    progress = Progress()
    for step in range(1, 21):
        for uid in ("a", "b"):
            told = Report(round=1, step=step, total_steps=100, samples=50, seconds=0.5)
            progress.add_report(uid, told, now=7.0, wall=1.0)  # all at one moment, as after a reconnection
    assert progress.samples_per_second(7.0) == pytest.approx(200.0)
    assert progress.eta_seconds(7.0) == pytest.approx(40.0, rel=0.1)
    assert progress.samples == 2000


def test_silent_members_add_nothing() -> None:
    progress = Progress()
    progress.add_report("a", Report(1, 1, 10, 5, 0.5), now=0.0, wall=1.0)
    assert progress.samples_per_second(1.0) > 0
    assert progress.samples_per_second(100.0) == 0
    assert progress.eta_seconds(100.0) is None


def test_a_new_round_may_go_back_to_its_checkpoint_and_late_reports_of_the_old_one_do_not_count_as_steps() -> None:
    progress = Progress()
    progress.add_report("a", Report(1, 50, 100, 5, 0.5), now=0.0, wall=1.0)
    progress.add_report("a", Report(2, 41, 100, 5, 0.5), now=1.0, wall=2.0)
    progress.add_report("b", Report(1, 51, 100, 5, 0.5), now=1.0, wall=2.0)
    assert (progress.step, progress.samples) == (41, 15)


@given(st.floats(), st.floats(), st.integers(-1, 2**70))
def test_whatever_is_reported_the_numbers_stay_finite(samples: float, seconds: float, step: int) -> None:
    progress, told = Progress(), Report(1, step, 10, samples, seconds, {"loss": samples})
    if told.validation_error() is None:
        progress.add_report("a", told, now=1.0, wall=1.0)
    assert math.isfinite(progress.samples_per_second(2.0))
    assert all(math.isfinite(value) for value in progress.metrics.values())


def test_a_problem_names_field_value_and_bound() -> None:
    assert Report(1, -1).validation_error() == f"step is -1; it must be between 0 and {2**53}"
    assert "samples is nan" in str(Report(1, 1, samples=math.nan).validation_error())
    assert "at most 64" in str(Report(1, 1, metrics={str(n): 1.0 for n in range(65)}).validation_error())
    assert Report(1, 1, 2, 3.0, 4.0, {"loss": math.nan}).validation_error() is None


def test_people_read_short_numbers() -> None:
    assert [format_rate(x) for x in (0.25, 950.4, 1234.0, 5.6e6)] == ["0.2/s", "950/s", "1.2k/s", "5.6M/s"]
    assert [format_steps(3, 0), format_steps(3, 9)] == ["3", "3/9"]


# --- state


def test_a_stored_state_comes_back_as_it_was() -> None:
    holder = stored_state.StoredHolder("u", "a request", latest=[1, 1])
    ledger = stored_state.StoredLedger("d", 10, 2, 3, fresh=4, waiting=[2, 1], holders=[holder])
    kept = stored_state.StoredState(
        job_uid="x", round=3, world=["u"], ledgers=[ledger], memory=stored_state.StoredMemory({2: 1.5}, asked=2)
    )
    assert stored_state.decode(stored_state.encode(kept)) == kept


@given(st.binary(max_size=200))
def test_damaged_bytes_are_told_and_nothing_else(data: bytes) -> None:
    with pytest.raises(stored_state.UnreadableState):
        stored_state.decode(data)


# --- quantities


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", "0.5"), ("2", "2"), (3, "3"), ("4Gi", str(4 * 2**30)), ("1k", "1000"), (".5", "0.5"), ("1e3", "1000")],
)
def test_quantities_mean_what_kubernetes_means(text: str | int, number: str) -> None:
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "1 Gi", "-1", "1KiB", "x"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)


def test_requests_add_up_over_containers_and_fall_back_to_limits() -> None:
    one = {"resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "memory": "1Gi"}}}
    two = {"resources": {"limits": {"cpu": 1}}}
    found = pod_requests({"spec": {"containers": [one, two, {}, "garbage"]}})
    assert found == {"cpu": Decimal("1.25"), "memory": Decimal(2**30)}
    assert pod_requests({"spec": []}) == {}
