"""The life of a member's training, as a pure function.

`decide(state, event)` returns the next state and actions. A member has one training process or
several, which start and end together: "the process" stands for all of them.

agent.py produces the events and executes the actions, so every order of events can be tested
without a process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elasticjob_api import names

CANNOT_RUN = frozenset({126, 127})
"""Exit codes of a command that is not there or not executable: trying again is of no use."""

EXIT_SECONDS = 5.0
"""For a process that still runs when the master ends its member, such as a parameter server at the
job's end.
"""


@dataclass(frozen=True)
class Launch:
    """Event and action: start the training process in the world of a round.

    Attributes:
        round: the number of the world.
        variables: those that the agent sets in each process to start, by rank.
        first_rank: the rank of the first one.
        members: answers its call `members`.
        restart_in_place: if it crashes, it may be started again in this world. Beside others it may not: they have its
            addresses, have passed barriers with it, and are ahead of the checkpoint that it would load.
        crash_excused: the last crash was the consequence of another member's, so it is not one of the retries.
    """

    round: int
    variables: Sequence[Mapping[str, str]] = ()
    first_rank: int = 0
    members: Sequence[Any] = ()
    restart_in_place: bool = True
    crash_excused: bool = False


@dataclass(frozen=True)
class Exited:
    """How a training process ended.

    Attributes:
        asked: it ended because it was asked to stop, not because it was finished.
        retry: it has crashed, and may be started again in another world.
        failed_at: when the first of the member's processes failed, by the agent's monotonic clock; None if none has.
    """

    round: int
    code: int
    asked: bool
    message: str
    retry: bool = False
    failed_at: float | None = None


# --- events
# ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StopRequested:
    """The master wants the process of a round to end; the next Launch follows."""

    round: int
    grace: float


@dataclass(frozen=True)
class WorldChanged:
    """The process goes on in another world than that of its start."""


@dataclass(frozen=True)
class DrainRequested:
    """The member is to leave: the master has sent a drain command, or the node SIGTERM."""

    grace: float
    by_node: bool = False


@dataclass(frozen=True)
class ExitRequested:
    """The agent ends with its process' exit code, or because of a problem of its node."""

    problem: str = ""


@dataclass(frozen=True)
class ProcessFailed:
    """One of the member's training processes has failed while others run.

    `confirmed`: one of them confirmed a stop.
    """

    confirmed: bool = False


@dataclass(frozen=True)
class ProcessEnded:
    """The member's training processes and all their descendants have exited.

    Attributes:
        code: 0 if all have exited with 0, else that of the first that has failed.
        message: its last words.
        confirmed: one of them confirmed that it ends for a stop. The others then need not: a training that is taken for
            stopped is started again and finds its end, one that is taken for finished is lost.
        failed_at: when the first of them failed, by the agent's monotonic clock; None if none has.
    """

    code: int
    message: str
    confirmed: bool = False
    failed_at: float | None = None


@dataclass(frozen=True)
class VerdictTimedOut:
    """The master has not said in time what becomes of this member, whose process ended by itself."""


Event = (
    Launch
    | StopRequested
    | WorldChanged
    | DrainRequested
    | ExitRequested
    | ProcessFailed
    | ProcessEnded
    | VerdictTimedOut
)


# --- actions
# --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EndProcess:
    """Make the process end: ask it, or SIGTERM if it cannot be asked.

    SIGTERM and SIGKILL after so many seconds. `by_node`: the node wants it, of which the master,
    and those who train with this process, only learn now.
    """

    terminate_after: float
    kill_after: float
    by_node: bool = False


KILL_NOW = EndProcess(0.0, 0.0)
"""SIGKILL, without asking."""


@dataclass(frozen=True)
class ReportLeaving:
    """Report to the master that the node ends this agent."""


@dataclass(frozen=True)
class AwaitVerdict:
    """Raise the event VerdictTimedOut when the master sends no command, or stays disconnected, for too long."""


@dataclass(frozen=True)
class Quit:
    """End the agent."""

    code: int


Action = Launch | Exited | EndProcess | ReportLeaving | AwaitVerdict | Quit


@dataclass(frozen=True)
class State:
    """What the agent remembers between two events.

    Attributes:
        running: what runs now.
        stopping: the running process was asked to end.
        next_launch: what to start as soon as the running process has exited.
        draining: no process is started any more; the agent ends with the present one.
        exiting: the master has ended this member; the agent ends with the present process.
        last_exit: how the latest process ended; reported again to a master that reconnects, until the next Launch.
        node_problem: why the node of this agent is not fit.
        restarts_left: crashes after which the process is still started again in this pod.
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
    """Return the state after an event, and what to do now."""
    match event:
        case Launch():
            return _launch(state, event)
        case StopRequested():
            return _stop(state, event)
        case WorldChanged():
            # The variables of its start are out of date: after a crash only the master can start it
            # again.
            known = replace(state.running, restart_in_place=False) if state.running else None
            return replace(state, running=known), ()
        case DrainRequested():
            return _drain(state, event)
        case ExitRequested():
            if state.running:
                return replace(state, exiting=True, stopping=True), (_graceful_end(EXIT_SECONDS),)
            if event.problem:
                return replace(state, exiting=True, node_problem=event.problem), (
                    Quit(names.EXIT_UNFIT),
                )
            return state, (Quit(_exit_code(state)),)
        case ProcessFailed():
            # The others wait for it, and for nothing else; in a stop they may be saving, and have
            # their time for it.
            alone = state.running is None or state.stopping or event.confirmed
            return state, () if alone else (KILL_NOW,)
        case ProcessEnded():
            return _ended(state, event)
        case VerdictTimedOut():
            if state.running or state.last_exit is None:
                return state, ()
            return state, (Quit(_exit_code(state)),)


def _launch(state: State, launch: Launch) -> Decision:
    if state.draining or state.exiting:
        return state, ()
    if state.running:
        if state.running.round == launch.round:
            return replace(state, next_launch=None), ()
        # The master has formed a newer world than this process', so there is nothing to wait for.
        return replace(state, next_launch=launch, stopping=True), (KILL_NOW,)
    if state.last_exit and state.last_exit.round == launch.round:
        return state, (state.last_exit,)  # it has run and ended already: the master has missed that
    retry = state.last_exit is not None and state.last_exit.retry and launch.crash_excused
    left = state.restarts_left + 1 if retry else state.restarts_left
    after = replace(
        state, running=launch, stopping=False, next_launch=None, last_exit=None, restarts_left=left
    )
    return after, (launch,)


def _stop(state: State, event: StopRequested) -> Decision:
    if state.running and state.running.round == event.round:
        return replace(state, stopping=True, next_launch=None), (
            EndProcess(event.grace, 2 * event.grace),
        )
    if not state.running and state.last_exit and state.last_exit.round == event.round:
        return state, (state.last_exit,)
    return state, ()


def _drain(state: State, event: DrainRequested) -> Decision:
    report: tuple[Action, ...] = (ReportLeaving(),) if event.by_node and not state.draining else ()
    if state.running:
        end = replace(_graceful_end(event.grace), by_node=event.by_node)
        return replace(state, draining=True, stopping=True, next_launch=None), (*report, end)
    finished = (
        state.last_exit is not None and not state.last_exit.asked and state.last_exit.code == 0
    )
    return replace(state, draining=True), (*report, Quit(0 if finished else names.EXIT_DRAINED))


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
    )
    after = replace(state, running=None, stopping=False, next_launch=None, last_exit=exited)
    if state.draining:
        return after, (exited, Quit(names.EXIT_DRAINED))
    if state.exiting:
        return after, (exited, Quit(_exit_code(after)))
    if asked:
        if state.next_launch is None:
            return after, (exited,)
        return replace(after, running=state.next_launch, last_exit=None), (
            exited,
            state.next_launch,
        )
    if event.code not in CANNOT_RUN | {0} and state.restarts_left > 0:
        after = replace(after, restarts_left=state.restarts_left - 1)
        if state.running.restart_in_place:
            return replace(after, running=state.running, last_exit=None), (state.running,)
        exited = replace(exited, retry=True)
        return replace(after, last_exit=exited), (exited, AwaitVerdict())
    return after, (exited, AwaitVerdict())


def _graceful_end(seconds: float) -> EndProcess:
    """Return how to end a process that must have exited after so many seconds."""
    return EndProcess(0.8 * seconds, seconds)


def _exit_code(state: State) -> int:
    """Return the agent's exit code: that of the latest process.

    One that was asked to end has not failed.
    """
    return 0 if state.last_exit is None or state.last_exit.asked else state.last_exit.code
