"""Compares what the rendezvous knows from changes with what all members show."""

from __future__ import annotations

from elasticjob_master.core.rendezvous import desired_commands
from elasticjob_master.core.rendezvous.census import Census
from elasticjob_master.core.rendezvous.state import RendezvousState


def check_census(state: RendezvousState, now: float) -> None:
    """Check that no change of a member was missed, and no command, after a decision."""
    counted = Census()
    for member in state.members:
        is_successor = state.is_successor(member)
        counted.update(member, in_world=state.in_world(member.uid), is_successor=is_successor)
    assert _facts(state.census) == _facts(counted)
    shared = desired_commands._shared_facts(state)
    for member in state.members:
        if member.disconnected_since is None and member.uid not in state.commands_due:
            desired = desired_commands._desired_command(state, member, shared, now)
            assert desired in (None, member.last_command)


def _facts(census: Census) -> dict[str, object]:
    counted = {role: uids for role, uids in census.counted.items() if uids}
    facts = {name: value for name, value in vars(census).items() if not name.startswith("_")}
    return {**facts, "counted": counted, "join_times": census.join_times()}
