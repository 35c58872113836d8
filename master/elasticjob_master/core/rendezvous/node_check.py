"""The node check: whether the nodes of new members are fit for training.

Each is checked once, before its first world. New members are checked in groups, one group at a
time, so that they can be compared. The members that have joined together measure the same piece of
work and a matrix product, and connect to each other and to the members that train already. A group
is evaluated when all its members have answered or timed out. A node fails if its own check says so,
if it is much slower than others of its role, if most connections from it and to it have failed, or
if all of them are slow (`slow_links`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from elasticjob_api.health import NodeCheck

from elasticjob_master.core.rendezvous import slow_links, world_formation
from elasticjob_master.core.rendezvous.members import Member, NodeCheckState
from elasticjob_master.core.rendezvous.state import RendezvousState

if TYPE_CHECKING:
    from elasticjob_master.core.rendezvous.member_events import NodeChecked

PEERS = 2
"""The number of peers that each member connects to. With two the bad end of a failed connection can
be found.
"""
SLOW_FACTOR = 2.0
LEAST_TO_COMPARE = 3
ANSWER_SECONDS = 30.0
"""Added to the time of the check itself, for the connections and the transport of the answer."""
LONGEST_DEVICE = 200
LONGEST_PROBLEM = 1000
MOST_UNFIT = 100
MOST_BROKEN_NODES = 10
_PEER_CANDIDATES = 64
"""The number of members among which peers on other nodes are searched."""


def advance(state: RendezvousState, now: float) -> None:
    """Begin and evaluate checks, and make members on unfit nodes leave."""
    enabled = state.node_check.enabled
    census = state.census
    concerned = census.unchecked | census.fresh if enabled else census.unchecked
    for member in filter(None, map(state.members.get, concerned)):
        _update_stage(state, member, now)
    if not enabled or not concerned:
        return
    present = [m for m in state.members if not m.leaving]
    group = [m for m in present if m.node_check.stage in ("running", "answered")]
    if not group:
        _begin_if_gathered(state, [m for m in present if m.disconnected_since is None], now)
    elif all(m.node_check.stage == "answered" for m in group):
        evaluate_group(group, present)
        for member in group:
            _apply_result(state, member)


def _update_stage(state: RendezvousState, member: Member, now: float) -> None:
    """Let a member wait for its check, or end a check that is overdue or no longer wanted."""
    check = member.node_check
    before = check.stage
    if not state.node_check.enabled or (before != "none" and member.process_round):
        # A member with a process trains already, as its agent has reported to a restarted master.
        member.node_check = NodeCheckState()
    elif before == "none":
        check.stage = "waiting"
    else:
        _apply_timeout(member, now)
    if member.node_check.stage != before:
        state.note(member.uid)


def _begin_if_gathered(state: RendezvousState, connected: list[Member], now: float) -> None:
    """Begin a group's check when all desired members have joined, or the join window has closed."""
    newcomers = [m for m in connected if m.node_check.stage == "waiting"]
    if not newcomers or state.sizes is None:
        return
    counts = world_formation.count_by_role(connected)
    complete = world_formation.has_enough_members(counts, state.sizes, all_desired=True)
    join_times = world_formation.join_times(m.joined_at for m in newcomers)
    if complete or world_formation.joins_settled(
        join_times, timing=state.timing, at_start=state.starts_anew(), now=now
    ):
        begin_checks(newcomers, connected, state.node_check, now)
        for member in newcomers:
            state.note(member.uid)


def reject_broken_node(state: RendezvousState, member: Member) -> None:
    """Have a member on a broken node replaced, as if its node had failed a check.

    That is not counted, so it happens once for each node, and for `MOST_BROKEN_NODES` in the life
    of the job. A program that writes such messages on every node fails like any other after that.
    """
    node = member.identity.node_name
    if node not in state.broken_nodes and len(state.broken_nodes) < MOST_BROKEN_NODES:
        state.broken_nodes.append(node)
        member.node_check = NodeCheckState("failed", problem=member.node_problem[:LONGEST_PROBLEM])
        _apply_result(state, member)


def _apply_result(state: RendezvousState, member: Member) -> None:
    """Make a member on an unfit node leave, and record the problem until a pod there passes."""
    place = member.identity.key
    state.unfit.pop(place, None)
    state.note(member.uid)
    if member.node_check.stage == "failed":
        member.exiting = True
        state.unfit[place] = (member.identity.pod_name, member.node_check.problem)
        if len(state.unfit) > MOST_UNFIT:
            del state.unfit[next(iter(state.unfit))]


def begin_checks(
    newcomers: Iterable[Member], members: Sequence[Member], check: NodeCheck, now: float
) -> None:
    """Begin the check of a group.

    The newcomers are checked. They are among all members, oldest first, that are connected and do
    not leave.
    """
    position = {member.uid: number for number, member in enumerate(members)}
    for member in newcomers:
        if member.uid in position:
            member.node_check = NodeCheckState(
                "running",
                peers=_peers(member, members, position[member.uid]),
                deadline=now + check.timeout_seconds + ANSWER_SECONDS,
            )


def record_answer(member: Member, answer: NodeChecked) -> None:
    """Record a member's answer. A second answer, or one to another check, changes nothing."""
    check = member.node_check
    if check.stage == "running" and answer.number == member.order:
        check.stage = "answered"
        check.problem = answer.problem[:LONGEST_PROBLEM]
        check.seconds = _known(answer.seconds)
        check.device = answer.device[:LONGEST_DEVICE]
        check.device_seconds = _known(answer.device_seconds)
        check.links = {
            peer: link
            for peer in check.peers
            if (link := answer.links.get(peer)) is not None
            and _known(link.round_trip_seconds)
            and _known(link.bytes_per_second)
        }
        check.unreached = tuple(peer for peer in check.peers if peer in set(answer.unreached))


def _apply_timeout(member: Member, now: float) -> None:
    """Record a problem instead of the answer if that is overdue."""
    check = member.node_check
    if check.stage == "running" and now > check.deadline:
        check.stage = "answered"
        check.problem = "the node check was not answered in time"


def evaluate_group(group: Sequence[Member], members: Iterable[Member]) -> None:
    """Decide whether each member of a group has passed, when all of them have answered."""
    works: dict[tuple[str, str], list[float]] = {}
    for member in members:
        if not member.node_check.problem:
            for work, seconds in _works(member):
                works.setdefault((member.identity.role, work), []).append(seconds)
    bad_connections = _unreachable(group)
    slow = slow_links.members_with_slow_links(group, least=LEAST_TO_COMPARE)
    for member in group:
        check = member.node_check
        check.problem = check.problem or _slowness(member, works)
        if not check.problem and member.uid in bad_connections:
            failed, all_ = bad_connections[member.uid]
            check.problem = (
                f"{failed} of {all_} connections between its node and other members failed"
            )
        check.problem = check.problem or slow.get(member.uid, "")
        check.stage = "failed" if check.problem else "passed"


def _works(member: Member) -> Iterator[tuple[str, float]]:
    """Yield what a member has computed, which is compared with equal works, and the seconds."""
    check = member.node_check
    if check.seconds:
        yield "the measured work", check.seconds
    if check.device and check.device_seconds:
        yield f"a matrix product ({check.device})", check.device_seconds


def _slowness(member: Member, works: Mapping[tuple[str, str], Sequence[float]]) -> str:
    """Return which of its works was slow on a member's node, compared with its role."""
    role = member.identity.role
    for work, seconds in _works(member):
        peers = works.get((role, work), [])
        usual = median(peers) if len(peers) >= LEAST_TO_COMPARE else 0.0
        if usual and seconds > SLOW_FACTOR * usual:
            return (
                f"its node took {seconds:.3f} s for {work}, "
                f"over {SLOW_FACTOR:g} times the median of {len(peers)} members "
                f"of role {role} ({usual:.3f} s)"
            )
    return ""


def _known(value: float) -> float:
    return value if 0 < value < float("inf") else 0.0


def _peers(member: Member, members: Sequence[Member], position: int) -> tuple[str, ...]:
    """Return the addresses of the next members in a ring, those of other nodes first."""
    count = min(len(members), _PEER_CANDIDATES)
    around = [members[(position + step) % len(members)].identity for step in range(1, count)]
    own = member.identity
    far = [other for other in around if not own.node_name or other.node_name != own.node_name]
    near = [other for other in around if other not in far] if len(far) < PEERS else []
    addresses = dict.fromkeys(
        other.address for other in (*far, *near) if other.address not in ("", own.address)
    )
    return tuple(addresses)[:PEERS]


def _unreachable(group: Sequence[Member]) -> dict[str, tuple[int, int]]:
    """Return by UID the members that cause failed connections, with the failed and all of theirs.

    The member with the largest share of failed connections is a cause, of equal ones the youngest.
    Its connections no longer count for the other ends. This is repeated until no member has more
    than half of its connections failed. Members that train already are never a cause.
    """
    by_address = {member.identity.address: member for member in group if member.node_check.peers}
    connections: dict[str, list[tuple[str, bool]]] = {member.uid: [] for member in group}
    for member in group:
        for address in member.node_check.peers if not member.node_check.problem else ():
            failed = address in member.node_check.unreached
            other = by_address.get(address)
            connections[member.uid].append((other.uid if other else "", failed))
            if other is not None:
                connections[other.uid].append((member.uid, failed))
    causes: dict[str, tuple[int, int]] = {}
    candidates = {
        member.uid: member.order
        for member in group
        if any(failed for _, failed in connections[member.uid])
    }
    while candidates:
        counts = {uid: _count(connections[uid], causes) for uid in candidates}
        worst = max(
            candidates, key=lambda uid: (counts[uid][0] / max(1, counts[uid][1]), candidates[uid])
        )
        failed_connections, all_connections = counts[worst]
        if 2 * failed_connections <= all_connections:
            break
        causes[worst] = counts[worst]
        del candidates[worst]
    return causes


def _count(
    connections: Iterable[tuple[str, bool]], causes: dict[str, tuple[int, int]]
) -> tuple[int, int]:
    """Return the numbers of failed and of all connections, without those to known causes."""
    rest = [failed for other, failed in connections if other not in causes]
    return sum(rest), len(rest)
