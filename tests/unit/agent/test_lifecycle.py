"""The agent's decisions, in every order of events."""

from __future__ import annotations

import pytest
from elasticjob_agent.events import (
    KILL_NOW,
    Action,
    AwaitVerdict,
    DrainRequested,
    EndProcess,
    Event,
    Exited,
    ExitRequested,
    Launch,
    ProcessEnded,
    ProcessFailed,
    Quit,
    ReportLeaving,
    StopRequested,
    VerdictTimedOut,
    WorldChanged,
)
from elasticjob_agent.lifecycle import State, decide
from elasticjob_api import names
from hypothesis import given
from hypothesis import strategies as st

rounds = st.integers(1, 4)
events = st.one_of(
    st.builds(Launch, rounds),
    st.builds(StopRequested, rounds, st.sampled_from([0.0, 5.0])),
    st.builds(DrainRequested, st.just(5.0), by_node=st.booleans()),
    st.just(ExitRequested()),
    st.builds(
        ProcessEnded, st.sampled_from([0, 1, 127, 143]), st.just("words"), confirmed=st.booleans()
    ),
    st.just(VerdictTimedOut()),
    st.just(WorldChanged()),
    st.builds(ProcessFailed, confirmed=st.booleans()),
)


def after(*history: Event, restarts: int = 0) -> tuple[State, tuple[Action, ...]]:
    state = State(restarts_left=restarts)
    actions: tuple[Action, ...] = ()
    for event in history:
        state, actions = decide(state, event)
    return state, actions


@given(st.lists(events, max_size=30), st.integers(0, 2))
def test_one_process_at_most_runs_and_it_is_the_one_the_state_names(
    history: list[Event], restarts: int
) -> None:
    state = State(restarts_left=restarts)
    running = 0
    for event in history:
        if isinstance(event, ProcessEnded):
            if not running:
                continue  # ProcessEnded comes only for a process that runs
            running = 0
        state, actions = decide(state, event)
        for action in actions:
            if isinstance(action, Launch):
                assert running == 0
                running = action.round
            if isinstance(action, EndProcess):
                assert running
            if isinstance(action, Quit):
                assert running == 0
                return
        assert (state.running.round if state.running else 0) == running


@given(st.lists(events, max_size=30))
def test_no_process_is_started_once_the_member_is_leaving(history: list[Event]) -> None:
    state = State(restarts_left=1)
    left = False
    for event in history:
        state, actions = decide(state, event)
        left = left or isinstance(event, DrainRequested)
        assert not (left and any(isinstance(action, Launch) for action in actions))


@given(st.lists(events, max_size=30), events)
def test_a_repeated_command_starts_nothing_twice(history: list[Event], event: Event) -> None:
    state, _ = after(*history)
    once, _ = decide(state, event)
    twice, actions = decide(once, event)
    if isinstance(event, Launch):
        assert not any(isinstance(action, Launch) for action in actions)
        assert twice == once


def test_a_stop_of_another_round_is_ignored() -> None:
    state, actions = after(Launch(2), StopRequested(1, 0))
    assert (state.stopping, actions) == (False, ())


def test_a_broken_worlds_process_is_killed_without_asking() -> None:
    assert after(Launch(1), StopRequested(1, 0))[1] == (KILL_NOW,)


def test_a_stop_asks_then_terminates_then_kills() -> None:
    assert after(Launch(1), StopRequested(1, 10))[1] == (EndProcess(10, 20),)


def test_a_drain_is_over_within_its_seconds() -> None:
    assert after(Launch(1), DrainRequested(10))[1] == (EndProcess(8, 10),)


def test_only_the_nodes_drain_is_reported_to_the_master_and_once() -> None:
    leave = DrainRequested(10, by_node=True)
    assert after(Launch(1), leave)[1][0] == ReportLeaving()
    assert ReportLeaving() not in after(Launch(1), leave, leave)[1]
    assert ReportLeaving() not in after(Launch(1), DrainRequested(10), leave)[1]


def test_a_success_waits_for_the_masters_confirmation() -> None:
    exited = Exited(1, 0, asked=False, message="")
    assert after(Launch(1), ProcessEnded(0, ""))[1] == (exited, AwaitVerdict())
    assert after(Launch(1), ProcessEnded(0, ""), VerdictTimedOut())[1] == (Quit(0),)


def test_a_finished_member_that_is_drained_has_still_succeeded() -> None:
    assert after(Launch(1), ProcessEnded(0, ""), DrainRequested(5))[1] == (Quit(0),)
    assert after(Launch(1), ProcessEnded(1, ""), DrainRequested(5))[1] == (Quit(143),)


def test_a_command_that_cannot_run_is_not_retried() -> None:
    assert AwaitVerdict() in after(Launch(1), ProcessEnded(127, ""), restarts=3)[1]
    assert after(Launch(1), ProcessEnded(1, ""), restarts=3)[1] == (Launch(1),)


@pytest.mark.guarantee("process-retried-in-its-pod")
def test_with_other_members_a_crashed_process_restarts_only_in_the_next_world() -> None:
    beside = Launch(1, restart_in_place=False)
    crashed = Exited(1, 1, asked=False, message="", retry=True)
    state, actions = after(beside, ProcessEnded(1, ""), restarts=1)
    assert (state.running, actions) == (None, (crashed, AwaitVerdict()))
    assert decide(state, beside)[1] == (crashed,), "a master that has missed it"
    state, actions = decide(state, Launch(2, restart_in_place=False))
    assert actions == (Launch(2, restart_in_place=False),)
    assert decide(state, ProcessEnded(1, ""))[1] == (
        Exited(2, 1, asked=False, message=""),
        AwaitVerdict(),
    )


@pytest.mark.guarantee("torchrun-process-fails")
def test_a_crash_that_follows_from_anothers_leaves_the_retries_as_they_are() -> None:
    state, _ = after(Launch(1, restart_in_place=False), ProcessEnded(1, ""), restarts=1)
    for round_ in (2, 3):
        excused = Launch(round_, restart_in_place=False, crash_excused=True)
        assert decide(state, excused)[1] == (excused,)
        again = decide(decide(state, excused)[0], excused)[0]
        assert again.restarts_left == 1, "a repeated Start gives nothing more"
        state, _ = decide(again, ProcessEnded(1, "", failed_at=5.0))
        assert state.last_exit == Exited(
            round_, 1, asked=False, message="", retry=True, failed_at=5.0
        )
    stopped, _ = decide(decide(state, Launch(4))[0], StopRequested(4, 1.0))
    stopped, _ = decide(stopped, ProcessEnded(0, ""))
    assert decide(stopped, Launch(5, crash_excused=True))[0].restarts_left == 0, (
        "it had not crashed"
    )


def test_a_process_in_another_world_is_not_restarted_in_that_of_its_start() -> None:
    state, actions = after(Launch(1), WorldChanged(), ProcessEnded(1, "words"), restarts=1)
    assert state.running is None
    assert actions == (Exited(1, 1, False, "words", retry=True), AwaitVerdict())


def test_a_verdict_that_comes_as_a_new_world_ends_the_waiting() -> None:
    state, actions = after(Launch(1), ProcessEnded(1, ""), Launch(2), VerdictTimedOut())
    assert (state.running, actions) == (Launch(2), ())


def test_a_process_that_ended_for_a_stop_has_not_succeeded() -> None:
    assert after(Launch(1), ProcessEnded(0, "", confirmed=True))[1] == (
        Exited(1, 0, asked=True, message=""),
    )


def test_a_member_ended_by_the_master_ends_with_its_process() -> None:
    assert after(Launch(1), ExitRequested(), ProcessEnded(143, ""))[1][-1] == Quit(0)
    assert after(Launch(1), ProcessEnded(3, ""), ExitRequested())[1] == (Quit(3),)


def test_a_member_whose_node_is_not_fit_ends_with_a_separate_code() -> None:
    state, actions = after(ExitRequested(problem="no GPU"))
    assert (state.node_problem, actions) == ("no GPU", (Quit(names.EXIT_UNFIT),))
    assert after(Launch(1), ExitRequested(problem="no GPU"), ProcessEnded(143, ""))[1][-1] == Quit(
        0
    ), "it has trained"


def test_a_process_on_a_broken_node_is_not_restarted_there() -> None:
    ended = ProcessEnded(1, "", node_problem="GPU lost")
    state, actions = after(Launch(1), ended, restarts=3)
    assert actions == (Exited(1, 1, False, "", node_problem="GPU lost"), AwaitVerdict())
    assert decide(state, ExitRequested("GPU lost"))[1] == (Quit(names.EXIT_UNFIT),)
    stopped = after(Launch(1), StopRequested(1, 1.0), ended)[0]
    assert stopped.last_exit == Exited(1, 1, asked=True, message=""), "it has not failed by itself"


# --- several processes of one member


def test_a_process_that_fails_ends_the_others_of_its_member_at_once() -> None:
    state, actions = after(Launch(1), ProcessFailed())
    assert actions == (KILL_NOW,)
    assert decide(state, ProcessEnded(3, "words"))[1] == (
        Exited(1, 3, asked=False, message="words"),
        AwaitVerdict(),
    )


@pytest.mark.guarantee("one-process-of-a-pod-fails")
def test_a_failure_during_a_stop_does_not_end_the_others() -> None:
    assert after(Launch(1), StopRequested(1, 10), ProcessFailed())[1] == ()
    assert after(Launch(1), DrainRequested(10), ProcessFailed())[1] == ()
    assert after(Launch(1), ProcessFailed(confirmed=True))[1] == ()


def test_a_failure_before_any_process_is_ignored() -> None:
    assert after(ProcessFailed()) == (State(), ())
