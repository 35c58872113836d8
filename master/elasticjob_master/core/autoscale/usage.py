"""Samples of the members' CPU and memory use, added up over a measurement window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elasticjob_master.core.autoscale.decision import MemberUsage, RoleUsage
from elasticjob_master.core.autoscale.job_scaling import RoleResources
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS
from elasticjob_master.core.rendezvous.members import Member


@dataclass(slots=True)
class _Sums:
    """Sums and maxima of one member's samples."""

    samples: int = 0
    warm_samples: int = 0
    warm_cpu: float = 0.0
    cpu_peak: float = 0.0
    memory: int = 0
    near_limit: int = 0


class UsageSamples:
    """Samples of all members; those of a member are dropped when it is no longer sampled."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sums] = {}

    def clear(self) -> None:
        """Drop all samples."""
        self._sums = {}

    def add(
        self, members: Iterable[Member], roles: Mapping[str, RoleResources], *, warm: bool
    ) -> None:
        """Add a sample of each member of these roles; `warm`: the warm-up is over."""
        before = self._sums
        self._sums = {}
        for member in members:
            if member.identity.role not in roles:
                continue
            sums = self._sums[member.uid] = before.get(member.uid, _Sums())
            usage = member.usage
            limit = roles[member.identity.role].of_member(member).memory
            sums.samples += 1
            if warm:
                sums.warm_samples += 1
                sums.warm_cpu += usage.cpu_cores
            sums.cpu_peak = max(sums.cpu_peak, usage.cpu_cores)
            sums.memory = max(sums.memory, usage.memory_bytes)
            if limit is not None and usage.memory_bytes >= THRESHOLDS.nearly_used_up * limit:
                sums.near_limit += 1

    def by_role(
        self, members: Iterable[Member], roles: Mapping[str, RoleResources]
    ) -> dict[str, RoleUsage]:
        """Return what the members of these roles have used and may use, without unsampled ones."""
        uses: dict[str, list[MemberUsage]] = {role: [] for role in roles}
        for member in members:
            if (sums := self._sums.get(member.uid)) is not None and member.identity.role in roles:
                role = member.identity.role
                uses[role].append(_usage(member, sums, roles[role]))
        return {
            role: RoleUsage(
                tuple(uses[role]), each.most_memory, each.memory_bound, own_memory=each.own_memory
            )
            for role, each in roles.items()
        }


def _usage(member: Member, sums: _Sums, role: RoleResources) -> MemberUsage:
    resources = role.of_member(member)
    return MemberUsage(
        name=member.identity.pod_name,
        cpu=sums.warm_cpu / max(1, sums.warm_samples),
        cpu_peak=sums.cpu_peak,
        memory=sums.memory,
        near_limit=sums.near_limit / sums.samples,
        cpu_request=resources.cpu,
        memory_limit=resources.memory,
        node_cores=member.usage.node_cores,
    )
