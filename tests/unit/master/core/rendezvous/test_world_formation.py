"""The order of a world's members, and when worlds are formed.

Join windows, silence and restarts.
"""

from __future__ import annotations

from elasticjob_master.core.rendezvous import world_formation
from elasticjob_master.core.rendezvous.advance import advance
from elasticjob_master.core.rendezvous.commands import MemberRemoved, Start, Stop
from elasticjob_master.core.rendezvous.events import TrainingHung
from elasticjob_master.core.rendezvous.host_discovery import HostList, next_host_list
from elasticjob_master.core.rendezvous.member_events import MemberConnected, MemberRegistered
from elasticjob_master.core.rendezvous.members import Identity, Member
from elasticjob_master.core.rendezvous.rules import Rules, Timing
from hypothesis import given
from hypothesis import strategies as st

from tests.support.master.simulated_agents import SimulatedRendezvous, world_of


def member(number: int, node: str) -> Member:
    return Member(
        Identity(f"p{number}", f"u{number}", "worker", number, node_name=node),
        number,
        disconnected_since=None,
    )


@st.composite
def members_and_last_world(draw: st.DrawFn) -> tuple[list[Member], list[str]]:
    """Members, oldest first, and a last world of some of them and of removed ones."""
    nodes = draw(st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=12))
    members = [member(number, node) for number, node in enumerate(nodes)]
    inside = draw(
        st.permutations([m.uid for m in members if draw(st.booleans())] + ["gone-1", "gone-2"])
    )
    return members, inside


@given(members_and_last_world())
def test_survivors_keep_their_ranks_order_and_everybody_is_in_the_world_once(
    crowd: tuple[list[Member], list[str]],
) -> None:
    members, last = crowd
    world = world_formation.rank_order(last, members)
    survivors = [uid for uid in last if not uid.startswith("gone")]
    assert list(world[: len(survivors)]) == survivors
    assert sorted(world) == sorted(m.uid for m in members)
    assert world == world_formation.rank_order(last, members), "the same facts make the same world"


@given(members_and_last_world())
def test_joiners_of_one_node_are_side_by_side(crowd: tuple[list[Member], list[str]]) -> None:
    members, last = crowd
    nodes = {m.uid: m.identity.node_name for m in members}
    joiners = [nodes[uid] for uid in world_formation.rank_order(last, members) if uid not in last]
    for node in set(joiners) - {""}:
        first = joiners.index(node)
        count = joiners.count(node)
        assert joiners[first : first + count] == [node] * count


def test_a_joiner_on_the_last_survivors_node_is_next_to_it() -> None:
    members = [
        member(0, "a"),
        member(1, "b"),
        member(2, "c"),
        member(3, "a"),
        member(4, "b"),
        member(5, "c"),
    ]
    assert world_formation.rank_order(["u0", "u1"], members) == ("u0", "u1", "u4", "u3", "u2", "u5")


def test_members_of_an_unknown_node_stay_in_the_order_in_which_they_came() -> None:
    assert world_formation.rank_order(
        [], [member(0, ""), member(1, "a"), member(2, ""), member(3, "a")]
    ) == (
        "u0",
        "u1",
        "u3",
        "u2",
    )


@given(
    members_and_last_world(), st.lists(st.sampled_from([None, "x", "y"]), min_size=12, max_size=12)
)
def test_members_of_one_topology_domain_have_neighbouring_ranks_and_rank_0_stays(
    crowd: tuple[list[Member], list[str]], drawn: list[str | None]
) -> None:
    members, last = crowd
    domains = {
        ("worker", index): domain for index, domain in enumerate(drawn) if domain is not None
    }
    plain = world_formation.rank_order(last, members)
    world = world_formation.rank_order(last, members, domains)
    assert sorted(world) == sorted(plain)
    assert world[:1] == plain[:1]
    order = [drawn[int(uid[1:])] for uid in world]
    for domain in set(order):
        first = order.index(domain)
        count = order.count(domain)
        assert order[first : first + count] == [domain] * count
        inside = [uid for uid in world if drawn[int(uid[1:])] == domain]
        assert inside == [uid for uid in plain if drawn[int(uid[1:])] == domain], (
            "within a domain all is as without"
        )


def test_the_join_window_starts_again_if_an_earlier_member_has_left() -> None:
    job, _ = world_of(2, desired=5)
    passing = job.join(2)
    job.kill(passing)
    job.advance(100.0)
    assert job.rendezvous.round == 1
    job.join(3)
    job.advance(0.3)
    assert job.rendezvous.phase == "training", "others may follow"
    job.join(4)
    job.run_until_quiet()
    assert job.rendezvous.round == 2, "both came into one world"
    assert len(job.rendezvous.world) == 4


def test_a_world_waits_no_longer_than_the_limit_for_joins_that_keep_coming() -> None:
    job, _ = world_of(1, desired=50)
    for index in range(1, 20):
        job.join(index)
        job.advance(0.5)
        if job.rendezvous.phase != "training":
            break
    assert index * 0.5 <= Timing().settle_limit + 0.5


def test_below_the_minimum_no_world_is_formed_however_long_it_takes() -> None:
    job = SimulatedRendezvous(minimum=3, desired=4)
    job.join(0)
    job.join(1)
    job.advance(1000.0)
    assert job.rendezvous.round == 0
    job.join(2)
    job.advance(Timing().settle_limit)
    assert len(job.rendezvous.world) == 3


def test_a_restart_kills_all_processes_at_once_and_restarts_the_same_members() -> None:
    job, agents = world_of(3)
    job.apply(TrainingHung())
    job.advance()
    assert [agent.inbox[0] for agent in agents] == [
        Stop(a.identity.pod_uid, 1, 0.0) for a in agents
    ]
    job.run_until_quiet()
    assert (job.rendezvous.round, job.rendezvous.world) == (2, ("0.0", "1.0", "2.0"))
    assert [agent.starts for agent in agents] == [[1, 2]] * 3


def test_a_restart_reaches_also_processes_that_adapt_to_changes() -> None:
    job = SimulatedRendezvous(minimum=1, desired=2, rules=Rules(in_process_elastic=True))
    agents = [job.join(0), job.join(1)]
    job.run_until_quiet()
    job.apply(TrainingHung())
    job.run_until_quiet()
    assert (job.rendezvous.round, job.rendezvous.phase) == (2, "training")
    assert [agent.starts for agent in agents] == [[1, 2]] * 2


def test_a_process_that_fails_during_a_restart_is_not_at_fault() -> None:
    job, agents = world_of(2)
    job.apply(TrainingHung())
    job.end_process(agents[0], 134, asked=False)
    job.run_until_quiet()
    assert not agents[0].ended
    assert job.rendezvous.world == ("0.0", "1.0")


def test_a_silent_member_is_suspected_after_a_third_of_the_time_and_trains_on() -> None:
    job, agents = world_of(2)
    quiet = job.members.get("1.0")
    assert quiet is not None
    job.advance_without_heartbeats_of(agents[1], 4.0)
    assert (quiet.state, job.rendezvous.phase) == ("suspected", "training")
    job.advance(1.0)
    assert quiet.state == "training", "it has been heard of again"


def test_a_silent_stream_has_three_times_the_timeout_of_a_closed_one() -> None:
    job, agents = world_of(2)
    job.advance_without_heartbeats_of(agents[1], 29.0)
    assert job.rendezvous.in_world("1.0")
    assert job.rendezvous.phase == "training"
    removed = job.advance_without_heartbeats_of(agents[1], 31.0)
    assert "1.0" in [command.uid for command in removed if isinstance(command, MemberRemoved)]


def test_a_disconnected_member_is_suspected_and_remains_in_the_world() -> None:
    job, agents = world_of(2)
    away = job.members.get("1.0")
    assert away is not None
    job.disconnect(agents[1])
    job.advance(1.0)
    assert (away.state, job.rendezvous.round) == ("training", 1)
    job.advance(5.0)
    assert (away.state, job.rendezvous.round) == ("suspected", 1)
    job.connect(agents[1])
    job.run_until_quiet()
    assert (away.state, job.rendezvous.round) == ("training", 1)


def test_a_thousand_members_get_the_same_world() -> None:
    job = SimulatedRendezvous(minimum=1, desired=1000)
    rendezvous = job.rendezvous
    members = job.members
    for index in range(1000):
        identity = Identity(
            f"p{index}", f"u{index}", "worker", index, 0, f"10.0.{index >> 8}.{index & 255}"
        )
        job.apply(MemberRegistered(identity))
        job.apply(MemberConnected(identity.pod_uid))
    commands = advance(rendezvous, job.now)
    while rendezvous.commands_left:
        commands += advance(rendezvous, job.now)
    assert commands == [Start(f"u{index}", 1) for index in range(1000)]
    assert len(members) == len(rendezvous.world) == 1000


def test_no_facts_about_removed_members_remain() -> None:
    job = SimulatedRendezvous(minimum=1, desired=3)
    for _ in range(60):
        for index in range(3):
            job.join(index)
        job.advance(3.0)
        job.agents = {a.identity.pod_uid: a for a in job.alive()[-3:]}
        for agent in job.alive():
            agent.inbox.clear()
    kept = job.rendezvous
    assert len(job.members) == 3
    assert len(kept.world) <= 3
    assert len(job.members.disconnected) <= 3
    assert not kept.unfit


def test_a_member_that_is_cut_off_stays_a_host_as_long_as_it_is_not_lost() -> None:
    job, agents = world_of(2)
    before = next_host_list(HostList(), job.members, role="worker", settled=True)
    job.disconnect(agents[1])
    job.advance(9.0)
    assert next_host_list(before, job.members, role="worker", settled=True) is before
    job.advance(2.0)
    after = next_host_list(before, job.members, role="worker", settled=True)
    assert [host.name for host in after.hosts] == [agents[0].identity.pod_name]
