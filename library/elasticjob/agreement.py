"""Lets all ranks of a world stop after the same step, without a message per step.

A rank counts its calls of `should_stop_together`. When it is asked to stop, a thread publishes the
next call as this rank's limit, also while the training waits in a collective. The ranks stop at the
highest limit of all. A rank that reaches its own limit waits for the others' limits, which come
from their threads and so do not depend on their training. Hence no rank passes the agreed call
before it knows of it, and no rank waits for the training of another one.

This needs a world in which all processes are asked to stop at the same time: they have one role.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from elasticjob import _process
from elasticjob._agent_connection import AgentConnection, AgentError, agent_connection
from elasticjob.key_value import KeyValue, barrier
from elasticjob.progress import should_stop
from elasticjob.world import members

_STOP = "elasticjob/stop"


def should_stop_together() -> bool:
    """Return whether to save, to call `confirm_stop` and to exit with 0; the same in all ranks.

        if elasticjob.should_stop_together():
            save(step)
            elasticjob.confirm_stop()
            raise SystemExit(0)

    All processes of the world call it after the same steps, but not after the last one of the
    training. It sends nothing and does not wait until this process is asked to stop. Then all ranks
    agree on a step through the master, once for each world.

    Raises:
        ValueError: the processes of the world have several roles.
        AgentError: this process was asked to stop, but its world has ended, or a rank has ended
            before it was asked.
    """
    agent = agent_connection()
    if agent is None or _process.size() == 1:
        return should_stop()
    return _process_agreement.of(agent).stops()


def can_stop_together() -> bool:
    """Return whether all processes of the world are asked to stop at the same time.

    Processes of several roles may be asked one after the other, so that the first ones would wait
    for the limits of the last ones.
    """
    if _process.size() == 1:
        return True
    agent = agent_connection()
    return agent is not None and len(_process_agreement.roles(agent)) == 1


@dataclass
class StopCounter:
    """The calls of one rank, and the call at which it stops.

    Attributes:
        calls: the calls so far.
        limit: the earliest call at which this rank can stop; None until it is asked to stop.
        agreed: the highest limit of all ranks; None until it is known.
    """

    calls: int = 0
    limit: int | None = None
    agreed: int | None = None

    def set_limit(self) -> int:
        """Set the limit to the next call, as the training may already be in the step before it."""
        self.limit = self.calls + 1
        return self.limit

    @property
    def must_wait(self) -> bool:
        """Whether the training may not continue before the limits of all ranks are known."""
        return self.limit is not None and self.agreed is None and self.calls >= self.limit

    @property
    def stops(self) -> bool:
        """Whether this rank stops at its present call."""
        return self.agreed is not None and self.calls >= self.agreed


class StopAgreement:
    """The agreement of one process with the others of its world."""

    def __init__(self, stop: threading.Event, highest_limit: Callable[[int], int]) -> None:
        """Start a thread that waits until this process is asked to stop.

        `highest_limit` publishes the limit of this rank, and returns the highest limit when all
        ranks have published theirs; it raises AgentError if this world has ended.
        """
        self._stop = stop
        self._highest_limit = highest_limit
        self._changed = threading.Condition()
        self._counter = StopCounter()
        self._error: AgentError | None = None
        threading.Thread(target=self._agree, name="elasticjob-stop", daemon=True).start()

    def stops(self) -> bool:
        """Count a call, and return whether this rank stops at it."""
        with self._changed:
            self._counter.calls += 1
            self._changed.wait_for(lambda: self._error or not self._counter.must_wait)
            if self._error is not None:
                raise AgentError(f"the ranks cannot agree to stop: {self._error}")
            return self._counter.stops

    def _agree(self) -> None:
        self._stop.wait()
        with self._changed:
            limit = self._counter.set_limit()
        try:
            agreed = self._highest_limit(limit)
        except AgentError as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
            return
        with self._changed:
            self._counter.agreed = agreed
            self._changed.notify_all()


def highest_limit(limit: int) -> int:
    """Publish the limit of this rank; return the highest one when all ranks have published theirs.

    Raises AgentError if this world has ended, or a rank of it that has not published its limit.
    """
    store = KeyValue()
    present: bytes | None = None
    while present is None or int(present) < limit:
        present = store.compare_and_set(_STOP, present, str(limit).encode())
    barrier(_STOP)
    highest = store.get(_STOP)
    assert highest is not None, "it was set before the barrier"
    return int(highest)


def _roles(agent: AgentConnection) -> frozenset[str]:
    try:
        return frozenset(agent.call("roles").result()["roles"])
    except AgentError:  # an agent of an earlier version, whose list of members costs no call
        return frozenset(member.role for member in members())


class _ProcessAgreement:
    """This process' agreement; a forked process, which has another connection, gets its own."""

    def __init__(self) -> None:
        self._agent: AgentConnection | None = None
        self._roles: frozenset[str] = frozenset()
        self._agreement: StopAgreement | None = None

    def roles(self, agent: AgentConnection) -> frozenset[str]:
        """Return the roles of the processes of the world."""
        if self._agent is not agent:
            self._roles = _roles(agent)
            self._agreement = None
            self._agent = agent
        return self._roles

    def of(self, agent: AgentConnection) -> StopAgreement:
        """Return the agreement, which begins at the first call."""
        if self._agent is agent and self._agreement is not None:
            return self._agreement
        roles = self.roles(agent)
        if len(roles) > 1:
            raise ValueError(
                f"this world has the roles {', '.join(sorted(roles))}, which may be asked to stop "
                "one after the other: agree on should_stop() by a collective"
            )
        agent.should_stop()  # informs the agent that this process listens for stops
        self._agreement = StopAgreement(agent.stop_event, highest_limit)
        return self._agreement


_process_agreement = _ProcessAgreement()


class AnyRank:
    """Returns whether a value is true in any rank, through the master.

    It takes the place of an all-reduce where the program has none. All ranks call it equally often.
    """

    def __init__(self, name: str) -> None:
        """Begin with the first use of a name in this world; no other agreement may have it."""
        self._name = name
        self._uses = 0

    def __call__(self, mine: bool) -> bool:
        """Return whether `mine` is true in any rank; raises AgentError if this world has ended."""
        store = KeyValue()
        use = str(self._uses).encode()
        # Two keys in turn: a rank that is ahead must not overwrite what another one still reads.
        key = f"{self._name}-{self._uses % 2}"
        self._uses += 1
        if mine:
            store.set(key, use)
        barrier(self._name)
        return store.get(key) == use
