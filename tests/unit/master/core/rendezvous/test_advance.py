"""The entry of the rendezvous: which code changes its state, and what repeated reports change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import elasticjob_master
import pytest
from elasticjob_master.core.rendezvous.advance import advance
from elasticjob_master.core.rendezvous.events import (
    DrainOrdered,
    Event,
    StateRestored,
    StateStored,
    SuccessorsChanged,
)
from elasticjob_master.core.rendezvous.member_events import (
    MemberConnected,
    MemberLeaving,
    NodeChecked,
    PlaceTaken,
    ProcessExited,
    ProcessRestarted,
    ProcessStarted,
)
from elasticjob_master.core.rendezvous.members import Identity, Member
from elasticjob_master.core.rendezvous.rules import RoleSize, Rules, Timing
from elasticjob_master.core.rendezvous.state import RendezvousState

from tests.support.master.simulated_agents import world_of

SOURCES = Path(elasticjob_master.__file__).parent
OWN = SOURCES / "core" / "rendezvous"
OWNERS = ("member", "members", "rendezvous")
FACTS = {field.name for owner in (Member, RendezvousState) for field in fields(owner)}


def assigned_attributes(path: Path) -> Iterator[str]:
    """Return the attributes of a state or of a member that a file assigns."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name in OWNERS and node.attr in FACTS:
                yield f"{path.relative_to(SOURCES)}:{node.lineno} assigns {name}.{node.attr}"


def test_only_the_rendezvous_changes_its_state_and_its_members() -> None:
    others = [path for path in SOURCES.rglob("*.py") if OWN not in path.parents]
    assert len(others) > 50
    assert [found for path in others for found in assigned_attributes(path)] == []
    assert list(assigned_attributes(OWN / "member_events.py")), "the search finds assignments"


@pytest.mark.parametrize(
    "event",
    [
        ProcessRestarted("0.0", 2),
        ProcessStarted("0.0", 1),
        ProcessExited("0.0", 1, exit_code=1),
        ProcessExited("0.0", 1, exit_code=0),
        PlaceTaken("0.0", 1),
        MemberLeaving("0.0"),
        NodeChecked("0.0", 1, 1.0),
        DrainOrdered({"j-worker-0.0": 5.0}),
        SuccessorsChanged(frozenset({("worker", 0)})),
        StateStored(1, 1000.0),
    ],
    ids=repr,
)
def test_a_repeated_report_changes_nothing(event: Event) -> None:
    job, _ = world_of(2)
    state = job.rendezvous
    advance(state, job.now, event)
    facts = (repr(state), [repr(member) for member in state.members])
    assert advance(state, job.now, event) == []
    assert (repr(state), [repr(member) for member in state.members]) == facts


@pytest.mark.guarantee("leases-survive-the-master")
def test_a_member_of_the_stored_world_is_awaited_even_if_no_process_of_it_was_stored() -> None:
    """The earlier master stored the world, and could not store that the processes started."""
    stored = [
        Member(Identity(f"j-worker-{n}", f"uid-{n}", "worker", n), n, disconnected_since=0.0)
        for n in range(3)
    ]
    stored[1].succeeded = True
    state = RendezvousState(rules=Rules(), timing=Timing(), sizes={"worker": RoleSize(2, 3)})
    advance(state, 0.0, StateRestored(tuple(stored), "training", 1, ("uid-0", "uid-1")))
    assert state.members.awaited == {"uid-0"}
    advance(state, 1.0, MemberConnected("uid-0", running_round=1))
    assert state.members.awaited == set()
