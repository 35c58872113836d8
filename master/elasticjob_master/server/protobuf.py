"""Converts between protobuf messages and the values of the core."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Set
from dataclasses import asdict

from elasticjob_api.limits import MAX_SLOTS
from elasticjob_api.refusals import BadRequest
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import parse_time
from elasticjob_api.v1 import agent_pb2 as agent
from elasticjob_api.v1 import discovery_pb2 as discovery
from elasticjob_api.v1 import job_pb2 as job
from elasticjob_api.v1 import shards_pb2 as shards
from elasticjob_shards import LeasesOfRound, Ledger

from elasticjob_master.core import collectives
from elasticjob_master.core.accounting import SPENT
from elasticjob_master.core.history import History
from elasticjob_master.core.rendezvous.host_discovery import HostList
from elasticjob_master.core.rendezvous.members import Identity, Member, Usage
from elasticjob_master.core.stacks import Collection, Stack, bounded

MOST_INCARNATIONS = 1_000_000
MOST_CORES = 100_000.0
MOST_BYTES = 2**50
MOST_GPU_PERCENT = 100_000
_MOST_REASON = 200
"""The characters of a reason of an agent."""

_STATES = {
    "waiting": agent.MEMBER_STATE_WAITING,
    "training": agent.MEMBER_STATE_TRAINING,
    "draining": agent.MEMBER_STATE_DRAINING,
    "suspected": agent.MEMBER_STATE_SUSPECTED,
    "succeeded": agent.MEMBER_STATE_SUCCEEDED,
}


def identity(request: agent.RegisterRequest, roles: Iterable[str]) -> Identity:
    """Return the identity with which an agent registers. Raises `BadRequest`.

    Args:
        request: the registration.
        roles: the roles of the job; empty: any role is accepted.
    """
    for field, longest in (("pod_name", 253), ("pod_uid", 128), ("role", 20), ("node_name", 253)):
        value = getattr(request, field)
        if len(value) > longest or (not value and field != "node_name"):
            raise BadRequest(f"{field} has {len(value)} characters; it must have 1 to {longest}")
        if not value.isprintable() or ":" in value or " " in value:
            raise BadRequest(f"{field} is {value!r}; it must be a name without spaces and colons")
    known = tuple(roles)
    if known and request.role not in known:
        raise BadRequest(f"role is {request.role!r}; this job has {', '.join(known)}")
    if request.index > 100_000:
        raise BadRequest(f"index is {request.index}; it must be at most 100000")
    if request.incarnation > MOST_INCARNATIONS:
        raise BadRequest(
            f"incarnation is {request.incarnation}; it must be at most {MOST_INCARNATIONS}"
        )
    if not 1 <= request.slots <= MAX_SLOTS:
        raise BadRequest(f"slots is {request.slots}; it must be between 1 and {MAX_SLOTS}")
    try:
        ipaddress.ip_address(request.address)
    except ValueError as error:
        raise BadRequest(
            f"address is {request.address[:80]!r}; it must be an IP address"
        ) from error
    return Identity(
        pod_name=request.pod_name,
        pod_uid=request.pod_uid,
        role=request.role,
        index=request.index,
        incarnation=request.incarnation,
        address=request.address,
        node_name=request.node_name,
        slots=request.slots,
    )


def usage(message: agent.ResourceUsage) -> Usage:
    """Return the resource usage in a heartbeat, within the bounds of what a node can have."""
    cores = message.cpu_cores
    if not 0.0 <= cores <= MOST_CORES:  # also NaN
        cores = 0.0
    return Usage(
        cores,
        min(message.memory_bytes, MOST_BYTES),
        min(message.gpu_percent, MOST_GPU_PERCENT),
        min(message.gpu_memory_bytes, MOST_BYTES),
        min(message.node_cores, int(MOST_CORES)),
    )


def standby(message: agent.Heartbeat) -> tuple[int, str]:
    """Return the number of processes in standby, and why there are none, within bounds."""
    return min(message.in_standby, MAX_SLOTS), message.why_no_standby[:_MOST_REASON]


def member(source: Member) -> agent.Member:
    """Return a member as clients and other members see it."""
    return agent.Member(
        **asdict(source.identity),
        state=_STATES[source.state],
        step=source.step,
        restarts=source.restarts,
        step_seconds=source.step_times.step_seconds,
        straggler=source.step_times.straggler,
        check_problem=source.node_check.problem,
        usage=agent.ResourceUsage(**asdict(source.usage)),
    )


def member_of_packed_world(source: Member, processes: int) -> agent.Member:
    """Return a member with the fields that agents read."""
    who = source.identity
    return agent.Member(
        pod_name=who.pod_name,
        role=who.role,
        index=who.index,
        address=who.address,
        node_name=who.node_name,
        processes=processes,
    )


def stacks(message: agent.Stacks) -> dict[int, Stack]:
    """Return the stacks of a member's processes by local rank, within bounds."""
    return {
        each.local_rank: bounded(each.frames, each.other_threads, each.problem)
        for each in message.processes[:MAX_SLOTS]
    }


def stack_list(source: Collection, wanted: Set[int]) -> job.StackList:
    """Group equal stacks of these ranks, or of all ranks if none are given."""
    found = ((stack, tuple(r for r in of if r in wanted)) for stack, of in source.groups())
    groups = [group for group in found if group[1]] if wanted else source.groups()
    messages = [
        job.StackGroup(
            ranks=ranks,
            frames=stack.frames,
            other_threads=stack.others,
            problem=stack.problem,
            waits_in=collectives.awaited(stack.frames),
        )
        for stack, ranks in groups
    ]
    return job.StackList(round=source.round, summary=collectives.summary(groups), groups=messages)


def host_list(source: HostList) -> discovery.HostList:
    """Return a published host list."""
    hosts = [discovery.Host(**host._asdict()) for host in source.hosts]
    return discovery.HostList(version=source.version, hosts=hosts)


def ledger(source: Ledger) -> shards.Ledger:
    """Return the number of shards in each state."""
    return shards.Ledger(
        dataset=source.dataset.name, growing=source.dataset.growing, **asdict(source.account())
    )


def history(source: History, after: int = 0) -> job.History:
    """Return the samples and events whose number is higher than `after`."""
    return job.History(
        samples=[
            job.Sample(
                time=each.time,
                round=each.round,
                world_size=each.world_size,
                step=each.step,
                samples_per_second=each.samples_per_second,
                metrics=source.metrics(each.number),
                spent=_spent(source.spent(each.number)),
            )
            for each in source.samples(after)
        ],
        events=[
            job.Event(time=each.time, reason=each.reason, message=each.text())
            for each in source.events(after)
        ],
    )


def _spent(seconds: tuple[float, ...]) -> job.TimeSpent | None:
    """Return what time was spent on; None if a master of an earlier version recorded it."""
    return job.TimeSpent(**dict(zip(SPENT, seconds, strict=False))) if seconds else None


def leases(message: agent.LeasedShards) -> LeasesOfRound:
    """Return the shards that a member reports as leased."""
    return LeasesOfRound(message.dataset, message.round, message.shards, message.ended)


def plan(source: ScalePlan) -> job.Plan:
    """Return the summary of a ScalePlan."""
    return job.Plan(
        name=source.metadata.name,
        source=source.spec.source,
        phase=source.status.phase or "Pending",
        reason=source.spec.reason,
        message=source.status.message,
        created=_seconds(source.metadata.creation_timestamp),
        completed=_seconds(source.status.completion_time),
    )


def _seconds(time: str | None) -> float:
    """Return a time in seconds since the epoch; 0: there is none yet."""
    return parse_time(time) if time else 0.0
