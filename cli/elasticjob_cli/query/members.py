"""Renders the members of a job; each view chooses some of the same columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from elasticjob_api.v1 import agent_pb2

from elasticjob_cli.common.formatting import UNKNOWN, format_bytes, table_of
from elasticjob_cli.common.tables import Table

_COLUMNS: Mapping[str, Callable[[agent_pb2.Member], str]] = MappingProxyType(
    {
        "ROLE": lambda member: member.role,
        "INDEX": lambda member: str(member.index),
        "MEMBER": lambda member: f"{member.role}-{member.index}",
        "POD": lambda member: member.pod_name,
        "NODE": lambda member: member.node_name or UNKNOWN,
        "ADDRESS": lambda member: member.address,
        "STATE": lambda member: _state(member),
        "STEP": lambda member: str(member.step),
        "STEP TIME": lambda member: _if_known(member.step_seconds, f"{member.step_seconds:.3g} s"),
        "CPU": lambda member: _if_known(member.HasField("usage"), f"{member.usage.cpu_cores:.2f}"),
        "MEMORY": lambda member: _if_known(
            member.HasField("usage"), format_bytes(member.usage.memory_bytes)
        ),
        "GPU": lambda member: _if_known(
            member.usage.gpu_memory_bytes, f"{member.usage.gpu_percent} %"
        ),
        "REMARK": lambda member: _remark(member),
    }
)


def members_table(
    members: Iterable[agent_pb2.Member],
    titles: Iterable[str],
    ranks: Mapping[str, int] = MappingProxyType({}),
    *,
    style: Callable[[agent_pb2.Member], str] = lambda _: "",
) -> Table:
    """Return a row per member. `titles` are those of `_COLUMNS`, and RANK."""

    def rank(member: agent_pb2.Member) -> str:
        return str(ranks.get(member.pod_uid, UNKNOWN))

    return table_of(members, {title: _COLUMNS.get(title, rank) for title in titles}, style=style)


def in_order(members: Iterable[agent_pb2.Member]) -> list[agent_pb2.Member]:
    """Return members by role, index and incarnation."""
    return sorted(members, key=lambda member: (member.role, member.index, member.incarnation))


def _state(member: agent_pb2.Member) -> str:
    """Return the state of a member, such as `Running`."""
    return agent_pb2.MemberState.Name(member.state).removeprefix("MEMBER_STATE_").capitalize()


def _remark(member: agent_pb2.Member) -> str:
    straggler = "straggler" if member.straggler else ""
    return "; ".join(filter(None, (straggler, member.check_problem)))


def _if_known(value: object, text: str) -> str:
    return text if value else UNKNOWN
