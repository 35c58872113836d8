"""What the members use while a size is held: sums of looks, from which the rules about CPU and memory are fed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elasticjob_master.core.autoscale.container_resources import ContainerResources
from elasticjob_master.core.autoscale.decision import MemberUsage
from elasticjob_master.core.autoscale.resource_rules import NEARLY_USED_UP
from elasticjob_master.core.rendezvous.members import Member


@dataclass(slots=True)
class Seen:
    """What one member has used so far."""

    looks: int = 0
    cpu: float = 0.0
    cpu_peak: float = 0.0
    memory: int = 0
    tight: int = 0


class UsageSamples:
    """One look at every member now and then; forgotten when a member is not there any more."""

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def clear(self) -> None:
        """Begin anew."""
        self._seen = {}

    def add(self, members: Iterable[Member], shares: dict[str, ContainerResources]) -> None:
        """Add what the members use now; `shares` are what they may use, by pod UID."""
        before, self._seen = self._seen, {}
        for member in members:
            seen = self._seen[member.uid] = before.get(member.uid, Seen())
            usage, limit = member.usage, shares.get(member.uid, ContainerResources()).memory
            seen.looks += 1
            seen.cpu += usage.cpu_cores
            seen.cpu_peak = max(seen.cpu_peak, usage.cpu_cores)
            seen.memory = max(seen.memory, usage.memory_bytes)
            seen.tight += limit is not None and usage.memory_bytes >= NEARLY_USED_UP * limit

    def usage_of(self, member: Member, share: ContainerResources) -> MemberUsage | None:
        """Return what a member has used, beside what it may."""
        seen = self._seen.get(member.uid)
        if seen is None:
            return None
        return MemberUsage(
            name=member.identity.pod_name,
            cpu=seen.cpu / seen.looks,
            cpu_peak=seen.cpu_peak,
            memory=seen.memory,
            near_limit=seen.tight / seen.looks,
            cpu_request=share.cpu,
            memory_limit=share.memory,
        )
