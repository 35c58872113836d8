"""Whoever ends a leaving process later leaves those before it the time to finish."""

from __future__ import annotations

import inspect
from itertools import pairwise

import elasticjob
from elasticjob_agent.events import DrainRequested, EndProcess, Launch, StopRequested
from elasticjob_agent.lifecycle import State, decide
from elasticjob_api import drain_times
from elasticjob_master.core.rendezvous.rules import Timing
from hypothesis import given
from hypothesis import strategies as st

drains = st.integers(1, 31_536_000)


def end(event: DrainRequested | StopRequested) -> EndProcess:
    """Return how the agent ends a running process."""
    _, actions = decide(State(running=Launch(round=1)), event)
    return next(action for action in actions if isinstance(action, EndProcess))


def in_order(times: dict[str, float]) -> bool:
    """Return whether each time is later than the one before it."""
    return all(earlier < later for earlier, later in pairwise(times.values()))


@given(drains)
def test_a_leaving_member_saves_before_its_agent_kills_it_before_the_operator_deletes_its_pod(
    seconds: int,
) -> None:
    by_master = end(DrainRequested(grace=drain_times.agent_seconds(seconds)))
    assert in_order(
        {
            "the program commits": drain_times.own_end(seconds),
            "the agent sends SIGTERM": by_master.terminate_after,
            "the agent kills it": by_master.kill_after,
            "the operator deletes the pod": seconds,
            "the kubelet kills the pod": drain_times.pod_grace_seconds(seconds),
        }
    )
    assert by_master.kill_after < drain_times.lost(seconds, Timing().stop_margin)


@given(drains)
def test_a_pod_that_the_node_ends_has_the_whole_time_before_the_kubelet_kills_it(
    seconds: int,
) -> None:
    by_node = end(DrainRequested(grace=seconds, by_node=True))
    assert in_order(
        {
            "a process that leaves by itself": drain_times.own_end(by_node.terminate_after),
            "the agent sends SIGTERM": by_node.terminate_after,
            "the agent kills it": by_node.kill_after,
            "the kubelet kills the pod": drain_times.pod_grace_seconds(seconds),
        }
    )


@given(drains)
def test_a_world_is_left_at_a_commit_before_its_processes_get_sigterm_and_are_lost(
    seconds: int,
) -> None:
    stop = end(StopRequested(round=1, grace=seconds))
    assert in_order(
        {
            "the world ends at a commit": drain_times.own_end(seconds),
            "the agent sends SIGTERM": stop.terminate_after,
            "the agent kills it": stop.kill_after,
            "the master counts it as lost": drain_times.lost(seconds, Timing().stop_margin),
        }
    )


def test_a_save_waits_for_the_master_less_than_half_of_the_drain_time() -> None:
    timeout = inspect.signature(elasticjob.Checkpointer).parameters["timeout"].default
    assert timeout <= drain_times.own_end(drain_times.DEFAULT_DRAIN_SECONDS)
