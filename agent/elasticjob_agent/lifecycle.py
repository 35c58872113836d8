"""Decides what the agent does in the life of a member's training, as a pure function.

`decide(state, event)` returns the next state and the actions (events.py). agent.py produces the
events and executes the actions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elasticjob_api import drain_times, names

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

CANNOT_RUN = frozenset({126, 127})
"""Exit codes of a command that does not exist or is not executable: a restart cannot help."""

EXIT_SECONDS = 5.0
"""For a process that still runs when the master ends its member, such as a parameter server at the
end of the job.
"""


@dataclass(frozen=True)
class State:
    """What the agent remembers between two events.

    Attributes:
        restarts_left: the number of crashes after which the process is still restarted in this pod.
        running: the launch of the running process.
        stopping: the running process was asked to end.
        next_launch: the launch that follows when the running process has exited.
        draining: the agent starts no further process and ends with the running one.
        exiting: the master has ended this member; the agent ends with the running process.
        last_exit: how the latest process ended, until the next launch. It is reported again when
            the agent reconnects to a master.
        node_problem: why the node of this agent is not fit.
    """

    restarts_left: int = 0
    running: Launch | None = None
    stopping: bool = False
    next_launch: Launch | None = None
    draining: bool = False
    exiting: bool = False
    last_exit: Exited | None = None
    node_problem: str = ""


Decision = tuple[State, tuple[Action, ...]]


def decide(state: State, event: Event) -> Decision:
    """Return the state after an event, and the actions."""
    match event:
        case Launch():
            return _launch(state, event)
        case StopRequested():
            return _stop(state, event)
        case WorldChanged():
            return _change_world(state)
        case DrainRequested():
            return _drain(state, event)
        case ExitRequested():
            return _exit(state, event)
        case ProcessFailed():
            if state.running is None or state.stopping or event.confirmed:
                return state, ()  # during a stop the others may be saving
            return state, (KILL_NOW,)  # the others would only wait for the failed one
        case ProcessEnded():
            return _ended(state, event)
        case VerdictTimedOut():
            if state.running or state.last_exit is None:
                return state, ()
            return state, (Quit(_exit_code(state)),)


def _change_world(state: State) -> Decision:
    if state.running is None:
        return state, ()
    # The variables of its start are out of date: after a crash only the master can start it.
    return replace(state, running=replace(state.running, restart_in_place=False)), ()


def _exit(state: State, event: ExitRequested) -> Decision:
    if state.running:
        return replace(state, exiting=True, stopping=True), (_graceful_end(EXIT_SECONDS),)
    if event.problem:
        after = replace(state, exiting=True, node_problem=event.problem)
        return after, (Quit(names.EXIT_UNFIT),)
    return state, (Quit(_exit_code(state)),)


def _launch(state: State, launch: Launch) -> Decision:
    if state.draining or state.exiting:
        return state, ()
    if state.running:
        if state.running.round == launch.round:
            return replace(state, next_launch=None), ()
        # The master has formed a newer world, so the process has nothing to wait for.
        return replace(state, next_launch=launch, stopping=True), (KILL_NOW,)
    if state.last_exit and state.last_exit.round == launch.round:
        return state, (state.last_exit,)  # it has run and ended, which the master has missed
    left = state.restarts_left
    if state.last_exit is not None and state.last_exit.retry and launch.crash_excused:
        left += 1
    after = replace(
        state, running=launch, stopping=False, next_launch=None, last_exit=None, restarts_left=left
    )
    return after, (launch,)


def _stop(state: State, event: StopRequested) -> Decision:
    if state.running and state.running.round == event.round:
        end = EndProcess(event.grace, kill_after=drain_times.sigkill_of_stop(event.grace))
        return replace(state, stopping=True, next_launch=None), (end,)
    if not state.running and state.last_exit and state.last_exit.round == event.round:
        return state, (state.last_exit,)
    return state, ()


def _drain(state: State, event: DrainRequested) -> Decision:
    report: tuple[Action, ...] = ()
    if event.by_node and not state.draining:
        report = (ReportLeaving(),)
    if state.running:
        end = replace(_graceful_end(event.grace), by_node=event.by_node)
        return replace(state, draining=True, stopping=True, next_launch=None), (*report, end)
    last = state.last_exit
    finished = last is not None and last.code == 0 and not last.asked
    quit_ = Quit(0) if finished else Quit(names.EXIT_DRAINED)
    return replace(state, draining=True), (*report, quit_)


def _ended(state: State, event: ProcessEnded) -> Decision:
    if state.running is None:
        return state, ()
    asked = state.stopping or event.confirmed
    exited = Exited(
        state.running.round,
        event.code,
        asked=asked,
        message=event.message,
        failed_at=event.failed_at,
        node_problem="" if asked else event.node_problem,
    )
    after = replace(state, running=None, stopping=False, next_launch=None, last_exit=exited)
    if state.draining:
        return after, (exited, Quit(names.EXIT_DRAINED))
    if state.exiting:
        return after, (exited, Quit(_exit_code(after)))
    if asked and state.next_launch is None:
        return after, (exited,)
    if asked and state.next_launch is not None:
        after = replace(after, running=state.next_launch, last_exit=None)
        return after, (exited, state.next_launch)
    may_recover = event.code not in CANNOT_RUN | {0} and not event.node_problem
    if may_recover and state.restarts_left > 0:
        after = replace(after, restarts_left=state.restarts_left - 1)
        if state.running.restart_in_place:
            return replace(after, running=state.running, last_exit=None), (state.running,)
        exited = replace(exited, retry=True)
        return replace(after, last_exit=exited), (exited, AwaitVerdict())
    return after, (exited, AwaitVerdict())


def _graceful_end(seconds: float) -> EndProcess:
    """Return how to end a process that must have exited within `seconds`."""
    return EndProcess(drain_times.sigterm_of_leaving(seconds), kill_after=seconds)


def _exit_code(state: State) -> int:
    """Return the agent's exit code: that of the latest process, or 0 if it ended for a stop."""
    if state.last_exit is None or state.last_exit.asked:
        return 0
    return state.last_exit.code
