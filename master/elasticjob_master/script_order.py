"""The script that a plan wants to have run by a member's agent.

Ordered until its end is known, and run once there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elasticjob_api.scripts import MAX_LAST_WORDS

from elasticjob_master.core.rendezvous.commands import RunScript
from elasticjob_master.core.rendezvous.members import Member

REPEAT_SECONDS = 3.0
_HIGHEST_EXIT_CODE = 255


@dataclass(frozen=True)
class ScriptOrder:
    """The script of a plan.

    Attributes:
        plan: the plan's UID.
        pod: the one that runs it.
        script: for a shell.
        environment: its variables.
        changed: role and index of the members that leave or have come.
        until: seconds since the epoch; the agent kills it then.
    """

    plan: str
    pod: str
    script: str
    environment: tuple[tuple[str, str], ...]
    changed: frozenset[tuple[str, int]]
    until: float


@dataclass(frozen=True)
class ScriptResult:
    """How the script of a plan has ended."""

    plan: str
    exit_code: int
    message: str


class Scripts:
    """The present order, if any, and its result.

    An order is repeated: its agent may have been disconnected, or the master that ordered it may be
    dead. The agent answers each one with the result, once there is one.
    """

    def __init__(self) -> None:
        self.result: ScriptResult | None = None
        self._order: ScriptOrder | None = None
        self._ordered_at = float("-inf")

    def set(self, order: ScriptOrder | None) -> None:
        """Take the order of the plans as they are now.

        A result that nobody waits for any more is forgotten.
        """
        if order != self._order:
            self._order, self._ordered_at = order, float("-inf")
        if self.result is not None and (order is None or order.plan != self.result.plan):
            self.result = None

    def due(self, members: Iterable[Member], now: float, wall: float) -> RunScript | None:
        """Return the command to send now, if its time has come and its member is there."""
        order = self._order
        if (
            order is None
            or self.result is not None
            or now < self._ordered_at + REPEAT_SECONDS
            or wall >= order.until
        ):
            return None
        present = list(members)
        runner = next((member for member in present if member.identity.pod_name == order.pod), None)
        if runner is None:
            return None
        self._ordered_at = now
        identities = sorted(
            (each.identity.role, each.identity.index, each.identity.pod_name, each.identity.slots)
            for each in present
        )
        pods = ",".join(
            f"{pod}:{slots}"
            for role, index, pod, slots in identities
            if (role, index) in order.changed
        )
        return RunScript(
            runner.uid, order.plan, order.script, order.environment, pods, order.until - wall
        )

    def ended(self, member: Member, plan: str, exit_code: int, message: str) -> None:
        """The agent of a member tells the end of a script.

        What was not ordered from it is ignored.
        """
        order = self._order
        if order is not None and order.plan == plan and order.pod == member.identity.pod_name:
            code = exit_code if 0 <= exit_code <= _HIGHEST_EXIT_CODE else _HIGHEST_EXIT_CODE
            self.result = ScriptResult(plan, code, message[-MAX_LAST_WORDS:])
