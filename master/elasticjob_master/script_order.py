"""Orders the script of a ScalePlan from a member's agent until its end is known.

The agent runs the script once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elasticjob_api.pod_identity import MemberKey
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
        script: the text for a shell.
        changed: role and index of the members that leave or have joined.
        until: when the agent kills the script, in seconds since the epoch.
    """

    plan: str
    pod: str
    script: str
    environment: tuple[tuple[str, str], ...]
    changed: frozenset[MemberKey]
    until: float


@dataclass(frozen=True)
class ScriptResult:
    """The end of a plan's script."""

    plan: str
    exit_code: int
    message: str


class Scripts:
    """Holds the present order, if any, and its result.

    The order is repeated, because its agent may have been disconnected, and another master may have
    sent it first. The agent answers each order with the result when the script has ended.
    """

    def __init__(self) -> None:
        self.result: ScriptResult | None = None
        self._order: ScriptOrder | None = None
        self._ordered_at = float("-inf")

    def set(self, order: ScriptOrder | None) -> None:
        """Replace the order, and forget the result of another plan."""
        if order != self._order:
            self._order = order
            self._ordered_at = float("-inf")
        if self.result is not None and (order is None or order.plan != self.result.plan):
            self.result = None

    def due(self, members: Iterable[Member], now: float, wall: float) -> RunScript | None:
        """Return the command to send now, if its time has come and its member exists."""
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
        """Record the end of the script, if it was ordered from this member."""
        order = self._order
        if order is not None and order.plan == plan and order.pod == member.identity.pod_name:
            code = exit_code
            if not 0 <= code <= _HIGHEST_EXIT_CODE:
                code = _HIGHEST_EXIT_CODE
            self.result = ScriptResult(plan, code, message[-MAX_LAST_WORDS:])
