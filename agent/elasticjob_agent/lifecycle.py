"""The agent's decisions, as a pure function: what happened and what is known give what to do.

The shell around it (agent.py) only carries actions out, so every order of events can be tried without a process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from elasticjob_api import names

CANNOT_RUN = frozenset({126, 127})
"""Exit codes of a command that is not there or not executable: trying again is of no use."""

EXIT_SECONDS = 5.0
"""For a process that still runs when the master ends its member, such as a parameter server at the job's end."""


@dataclass(frozen=True)
class Launch:
    """Action and order: start the training process in the world of a round, whose members are told to who asks."""

    round: int
    environment: Mapping[str, str] = field(default_factory=dict)
    members: Sequence[Any] = ()


@dataclass(frozen=True)
class Exited:
    """How a training process ended. `asked`: it ended because it was told to, not because it was finished."""

    round: int
    code: int
    asked: bool
    message: str


# --- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StopOrdered:
    """The master wants the process of a round to end; the next Launch follows."""

    round: int
    grace: float


@dataclass(frozen=True)
class DrainOrdered:
    """The member leaves: the master says so, or the node by SIGTERM."""

    grace: float
    by_node: bool = False


@dataclass(frozen=True)
class ExitOrdered:
    """The agent ends with its process' exit code, or because of a problem of its node."""

    problem: str = ""


@dataclass(frozen=True)
class ProcessEnded:
    """The training process and all it had started are gone. `confirmed`: it said that it ends for a stop."""

    code: int
    message: str
    confirmed: bool = False


@dataclass(frozen=True)
class NoVerdict:
    """The master has not said in time what becomes of a process that ended by itself."""


Event = Launch | StopOrdered | DrainOrdered | ExitOrdered | ProcessEnded | NoVerdict


# --- actions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EndProcess:
    """Make the process end: ask it, or SIGTERM if it cannot be asked; SIGTERM and SIGKILL after so many seconds."""

    terminate_after: float
    kill_after: float


AT_ONCE = EndProcess(0.0, 0.0)
"""SIGKILL, without asking."""


@dataclass(frozen=True)
class TellLeaving:
    """Tell the master that the node ends this agent."""


@dataclass(frozen=True)
class AwaitVerdict:
    """Come back with NoVerdict when the master stays silent or away for too long."""


@dataclass(frozen=True)
class Quit:
    """End the agent."""

    code: int


Action = Launch | Exited | EndProcess | TellLeaving | AwaitVerdict | Quit


@dataclass(frozen=True)
class State:
    """All the agent knows between two events.

    Attributes:
        running: what runs now.
        stopping: the running process was told to end.
        following: what to start as soon as the running process is gone.
        draining: no process is started any more; the agent ends with the present one.
        exiting: the master has ended this member; the agent ends with the present process.
        last: how the latest process ended, told again to a master that comes back until the next Launch.
        problem: why the node of this agent is not fit.
        restarts_left: crashes that are still retried in place.
    """

    restarts_left: int = 0
    running: Launch | None = None
    stopping: bool = False
    following: Launch | None = None
    draining: bool = False
    exiting: bool = False
    last: Exited | None = None
    problem: str = ""


Decision = tuple[State, tuple[Action, ...]]


def decide(state: State, event: Event) -> Decision:
    """Return the state after an event, and what to do now."""
    match event:
        case Launch():
            return _launch(state, event)
        case StopOrdered():
            return _stop(state, event)
        case DrainOrdered():
            return _drain(state, event)
        case ExitOrdered():
            if state.running:
                return replace(state, exiting=True, stopping=True), (_gently(EXIT_SECONDS),)
            if event.problem:
                return replace(state, exiting=True, problem=event.problem), (Quit(names.EXIT_UNFIT),)
            return state, (Quit(_code(state)),)
        case ProcessEnded():
            return _ended(state, event)
        case NoVerdict():
            if state.running or state.last is None:
                return state, ()
            return state, (Quit(_code(state)),)


def _launch(state: State, order: Launch) -> Decision:
    if state.draining or state.exiting:
        return state, ()
    if state.running:
        if state.running.round == order.round:
            return replace(state, following=None), ()
        # The master is past the world this process belongs to, so nothing of it can be waited for.
        return replace(state, following=order, stopping=True), (AT_ONCE,)
    if state.last and state.last.round == order.round:
        return state, (state.last,)  # it has run and ended already: the master has missed that
    return replace(state, running=order, stopping=False, following=None, last=None), (order,)


def _stop(state: State, order: StopOrdered) -> Decision:
    if state.running and state.running.round == order.round:
        return replace(state, stopping=True, following=None), (EndProcess(order.grace, 2 * order.grace),)
    if not state.running and state.last and state.last.round == order.round:
        return state, (state.last,)
    return state, ()


def _drain(state: State, order: DrainOrdered) -> Decision:
    tell: tuple[Action, ...] = (TellLeaving(),) if order.by_node and not state.draining else ()
    if state.running:
        return replace(state, draining=True, stopping=True, following=None), (*tell, _gently(order.grace))
    finished = state.last is not None and not state.last.asked and state.last.code == 0
    return replace(state, draining=True), (*tell, Quit(0 if finished else names.EXIT_DRAINED))


def _ended(state: State, event: ProcessEnded) -> Decision:
    if state.running is None:
        return state, ()
    asked = state.stopping or event.confirmed
    exited = Exited(round=state.running.round, code=event.code, asked=asked, message=event.message)
    after = replace(state, running=None, stopping=False, following=None, last=exited)
    if state.draining:
        return after, (exited, Quit(names.EXIT_DRAINED))
    if state.exiting:
        return after, (exited, Quit(_code(after)))
    if asked:
        if state.following is None:
            return after, (exited,)
        return replace(after, running=state.following, last=None), (exited, state.following)
    if event.code not in CANNOT_RUN | {0} and state.restarts_left > 0:
        again = replace(after, running=state.running, restarts_left=state.restarts_left - 1, last=None)
        return again, (state.running,)
    return after, (exited, AwaitVerdict())


def _gently(seconds: float) -> EndProcess:
    """Return the way to end a process that has to be gone after so many seconds."""
    return EndProcess(0.8 * seconds, seconds)


def _code(state: State) -> int:
    """Return the exit code that tells how the latest process ended; one that was asked to end has not failed."""
    return 0 if state.last is None or state.last.asked else state.last.code
