"""The published host list.

Its order, when it changes, and that it never replaces all hosts at once.
"""

from __future__ import annotations

import pytest
from elasticjob_master.core.rendezvous.host_discovery import HostList, next_host_list
from elasticjob_master.core.rendezvous.members import Identity, Members


def present(*indices: int) -> Members:
    members = Members()
    for index in indices:
        member = members.add(
            Identity(
                f"j-worker-{index}", f"u{index}", "worker", index, 0, f"10.0.0.{index}", slots=2
            ),
            0.0,
        )
        members.set_disconnected(member, None)
    return members


def test_the_list_is_in_the_order_of_joining_in_horovods_grammar() -> None:
    hosts = next_host_list(HostList(), present(1, 0), role="worker", settled=True)
    assert hosts.text() == "j-worker-1:2\nj-worker-0:2\n"
    assert hosts.text(addresses=True) == "10.0.0.1:2\n10.0.0.0:2\n"
    assert hosts.version == 1


def test_nothing_is_published_while_a_world_forms_or_when_nothing_changes() -> None:
    first = next_host_list(HostList(), present(0), role="worker", settled=True)
    assert next_host_list(first, present(0, 1), role="worker", settled=False) is first
    assert next_host_list(first, present(0), role="worker", settled=True) is first


def test_suspected_draining_and_finished_members_are_no_hosts() -> None:
    members = present(0, 1, 2, 3)
    states = list(members)
    members.set_disconnected(states[0], 1.0)
    states[1].draining_since = 1.0
    states[2].succeeded = True
    assert [h.name for h in next_host_list(HostList(), members, role=None, settled=True).hosts] == [
        "j-worker-3"
    ]


@pytest.mark.guarantee("slow-agent")
def test_no_list_replaces_every_host_of_the_last() -> None:
    before = next_host_list(HostList(), present(0, 1), role="worker", settled=True)
    members = present(0, 1, 2, 3)
    for member in list(members)[:2]:
        member.draining_since = 1.0
    after = next_host_list(before, members, role="worker", settled=True)
    assert {h.name for h in after.hosts} & {h.name for h in before.hosts}
    then = next_host_list(after, members, role="worker", settled=True)
    assert [h.name for h in then.hosts] == ["j-worker-2", "j-worker-3"]
