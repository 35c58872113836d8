"""Checks that the history is bounded, in order, and restored after a restart of the master."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

from elasticjob_master.controller import Controller
from elasticjob_master.core.history import (
    LONGEST_MESSAGE,
    MOST_EVENTS,
    MOST_SAMPLES,
    MOST_SERIES,
    PROCESS_RESTARTED,
    SAMPLE_SECONDS,
    Event,
    History,
    Sample,
)
from elasticjob_master.core.rendezvous.members import Identity
from elasticjob_master.job_facts import JobFacts
from elasticjob_master.persistence import snapshot
from elasticjob_master.persistence.stored_state import StoredState, encode
from elasticjob_master.server import protobuf
from hypothesis import given, settings
from hypothesis import strategies as st

MOST_BYTES = 128 * 1024
"""The largest size of the history in the stored state, which must fit into a ConfigMap of 1 MiB."""


def sampled(history: History, moments: list[float]) -> None:
    for step, moment in enumerate(moments):
        history.add_sample(Sample(0, moment, 1, 2, step, float(step)))


def test_samples_are_seconds_apart_at_the_end_and_hours_apart_on_the_first_day() -> None:
    history = History()
    sampled(history, [SAMPLE_SECONDS * tick for tick in range(17_280)])  # a day
    samples = history.samples()
    now = samples[-1].time
    assert len(samples) == MOST_SAMPLES
    assert samples[0].time == 0.0, "the beginning is kept"
    for before, after in pairwise(samples):
        gap = after.time - before.time
        age = now - before.time
        assert gap <= max(2 * SAMPLE_SECONDS, 0.2 * age), f"{gap} s without a sample, {age} s ago"


@settings(max_examples=20)
@given(st.lists(st.floats(-1e9, 1e10), max_size=60), st.integers(1, 8), st.integers(0, 400))
def test_samples_are_bounded_and_in_order_with_any_clock(
    moments: list[float], times: int, after: int
) -> None:
    moments = moments * times
    history = History()
    sampled(history, moments)
    numbers = [sample.number for sample in history.samples()]
    assert len(numbers) <= MOST_SAMPLES
    assert numbers == sorted(set(numbers))
    if moments:
        assert history.samples()[-1].step == len(moments) - 1
    assert [sample.number for sample in history.samples(after=after)] == [
        each for each in numbers if each > after
    ]


def test_an_idle_job_adds_no_samples() -> None:
    history = History()
    for tick in range(100):
        history.add_sample(Sample(0, 5.0 * tick, 3, 2, 7, 0.0))
    assert len(history.samples()) == 1


MESSAGES = st.text(max_size=3).map(lambda text: 100 * text) | st.integers(0, 5).map(str)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), MESSAGES), max_size=60), st.integers(1, 8))
def test_events_are_in_order_and_dropped_only_beyond_the_bound(
    added: list[tuple[str, str]], times: int
) -> None:
    added = added * times
    history = History()
    for moment, (reason, message) in enumerate(added):
        history.add_event(reason, message, float(moment))
    events = history.events()
    assert len(events) <= MOST_EVENTS
    assert [event.number for event in events] == sorted({event.number for event in events})
    assert all(
        len(event.message.encode()) <= LONGEST_MESSAGE and event.message.isprintable()
        for event in events
    )
    assert history.event_totals == Counter(reason for reason, _ in added)
    if len(added) <= MOST_EVENTS:
        assert sum(event.times for event in events) == len(added)


def test_a_thousand_registrations_do_not_displace_the_only_stall() -> None:
    history = History()
    history.add_event("Stalled", "no step for 300 s", 1.0)
    for pod in range(1000):
        history.add_event("MemberRegistered", f"job-worker-{pod}", 2.0 + pod)
    events = history.events()
    assert events[0].reason == "Stalled"
    assert events[-1].message == "job-worker-999"
    assert len(events) == MOST_EVENTS


def test_a_repeated_event_is_counted_and_published_as_new() -> None:
    history = History()
    history.add_event("MemberLost", "job-worker-3", 1.0)
    after = history.number
    for moment in (2.0, 3.0):
        history.add_event("MemberLost", "job-worker-3", moment)
    [event] = history.events(after=after)
    assert (event.text(), event.time) == ("job-worker-3 (3 times)", 3.0)
    assert len(history.events()) == 1


def test_the_largest_history_fits_into_the_stored_state() -> None:
    history = History()
    for number in range(2 * MOST_EVENTS):
        history.add_event(f"{number % 7}" * 40, f"{number}" + '"' * 400, 1.7e9 + number / 3)
    for number in range(2 * MOST_SAMPLES):
        metrics = {f"{name}" * 64: -math.pi * 10.0 ** (number % 300) for name in range(MOST_SERIES)}
        history.add_sample(Sample(0, 1.7e9 + number / 3, 1, 2, number, float(number)), metrics)
    state = StoredState(samples=history.samples(), events=history.events(), series=history.series())
    empty = len(encode(StoredState()))
    assert len(encode(state)) - empty < MOST_BYTES
    worst = sum(len(str(tuple(each))) for each in (*state.samples, *state.events)) + len(
        str(state.series)
    )
    assert worst < MOST_BYTES, "also if it cannot be compressed"


async def test_history_continues_after_the_master_is_replaced() -> None:
    before = Controller(framework="jax", facts=JobFacts(sizes={}))
    before.register(Identity("job-worker-0", "uid-0", "worker", 0))
    before.history.add_sample(Sample(0, 5.0, 1, 1, 10, 3.5))
    before.history.add_event("Stalled", "no step", 6.0)
    before.history.add_event("Stalled", "no step", 7.0)
    after = Controller(framework="jax", facts=JobFacts(sizes={}))
    snapshot.restore(after, snapshot.take(before, job_uid=""))
    assert after.history.samples() == before.history.samples() == [Sample(2, 5.0, 1, 1, 10, 3.5)]
    assert after.history.events() == before.history.events()
    assert after.history.events()[-1] == Event(4, 7.0, "Stalled", "no step", 2)
    after.history.add_event("Resumed", "step 11 is finished", 8.0)
    assert after.history.events()[-1].number == before.history.number + 1, (
        "who watches by number misses nothing"
    )


def test_the_documentation_lists_every_reason_in_the_code() -> None:
    root = Path(__file__).parents[4]
    given = {PROCESS_RESTARTED}
    for file in (root / "master" / "elasticjob_master").rglob("*.py"):
        given |= set(
            re.findall(
                r"(?:\brecord_event|\b_event|\bNewEvent)\(\s*\"([A-Z]\w+)\"", file.read_text()
            )
        )
    table = (root / "docs" / "queries.md").read_text().split("| Reason | When |")[1]
    assert set(re.findall(r"`([A-Z]\w+)`", table)) == given


def test_metrics_are_recorded_and_dropped_with_their_samples() -> None:
    history = History()
    for step in range(3 * MOST_SAMPLES):
        metrics = {"loss": 1 / (step + 1)} | ({"accuracy": step / 7} if step >= 5 else {})
        history.add_sample(Sample(0, 5.0 * step, 1, 2, step, 1.0), metrics)
    series = history.series()
    assert list(series) == ["loss", "accuracy"]
    for sample, loss, accuracy in zip(
        history.samples(), series["loss"], series["accuracy"], strict=True
    ):
        assert (
            loss == float(f"{1 / (sample.step + 1):.5g}") == history.metrics(sample.number)["loss"]
        )
        assert accuracy == (None if sample.step < 5 else float(f"{sample.step / 7:.5g}"))
    again = History()
    again.restore(history.samples(), history.events(), series)
    assert (again.series(), again.samples()) == (series, history.samples())
    assert len(history._metrics) == MOST_SAMPLES, "what is dropped is forgotten"


def test_only_the_metrics_reported_first_are_recorded() -> None:
    history = History()
    history.add_sample(Sample(0, 0.0, 1, 1, 1, 1.0), {"loss": 1.0})
    for step in range(2, 40):
        metrics = {f"metric {number}": float(step) for number in range(64)} | {"loss": 1.0}
        history.add_sample(Sample(0, float(step), 1, 1, step, 1.0), metrics)
    names = ["loss", *(f"metric {number}" for number in range(MOST_SERIES - 1))]
    assert list(history.series()) == names
    again = History()
    again.restore(history.samples(), [], history.series())
    again.add_sample(Sample(0, 99.0, 1, 1, 99, 1.0), {"new": 1.0, "loss": 2.0})
    assert list(again.series()) == names
    again.restore(
        history.samples(), [], {f"of a later master {number}": [1.0] for number in range(99)}
    )
    assert len(again.series()) == MOST_SERIES


def test_time_that_passes_without_progress_makes_no_samples_and_is_in_the_next_one() -> None:
    history = History()
    history.restore([Sample(1, 0.5, 1, 2, 4, 1.0)], [])
    history.add_sample(Sample(0, 1.0, 1, 2, 5, 1.0), spent=(0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    history.add_sample(Sample(0, 6.0, 1, 2, 5, 1.0), spent=(5.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    history.add_sample(Sample(0, 9.0, 1, 2, 6, 1.0), spent=(7.0, 0.0, 2.0, 0.0, 0.0, 0.0))
    again = History()
    again.restore(history.samples(), [], spent=history.all_spent())
    for kept in (history, again):
        assert [each.time for each in kept.samples()] == [0.5, 1.0, 9.0]
        before, _, last = protobuf.history(kept).samples
        assert (last.spent.waiting, last.spent.training) == (7.0, 2.0)
        assert not before.HasField("spent"), "a master of an earlier version stored it"
