"""Tests that each framework gets an environment that all members of a world agree on."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from elasticjob_api.frameworks import FRAMEWORKS, Peer, framework_of
from elasticjob_api.frameworks.peer import node_port
from elasticjob_api.frameworks.tensorflow import FIRST_PORTS
from elasticjob_localcluster.node.addresses import NetworkIdentity, derive_address
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def worlds(draw: st.DrawFn, framework: str) -> Sequence[Peer]:
    """The processes of members with holes in their indices, in any order of ranks."""
    return FRAMEWORKS[framework].processes(draw(members_of(framework)))


@st.composite
def members_of(draw: st.DrawFn, framework: str) -> Sequence[Peer]:
    """Members with holes in their indices, in any order, and with one or several processes each."""
    roles = FRAMEWORKS[framework].roles or ("worker", "other")
    ids = draw(
        st.lists(
            st.tuples(st.sampled_from(roles), st.integers(0, 200)),
            min_size=1,
            max_size=12,
            unique=True,
        )
    )
    return [
        Peer(
            name=f"job-{role}-{index}",
            role=role,
            index=index,
            address=f"10.1.{number}.7",
            slots=draw(st.integers(1, 4)),
        )
        for number, (role, index) in enumerate(ids)
    ]


def environments(framework: str, world: Sequence[Peer]) -> list[dict[str, str]]:
    return list(map(FRAMEWORKS[framework].environment(world), range(len(world))))


@pytest.mark.parametrize("framework", FRAMEWORKS)
@given(data=st.data())
def test_every_variable_is_a_text_without_line_breaks(framework: str, data: st.DataObject) -> None:
    for environment in environments(framework, data.draw(worlds(framework))):
        assert all(isinstance(value, str) and "\n" not in value for value in environment.values())


@pytest.mark.guarantee("several-processes-per-pod")
@given(members_of("pytorch"))
def test_the_processes_of_a_member_have_adjacent_ranks_in_the_order_of_the_members(
    members: Sequence[Peer],
) -> None:
    processes = FRAMEWORKS["pytorch"].processes(members)
    assert [(one.name, one.local_rank) for one in processes] == [
        (member.name, local_rank) for member in members for local_rank in range(member.slots)
    ]
    assert all(one.local_size == one.slots for one in processes)


@given(members_of("horovod"))
def test_with_a_launcher_each_agent_starts_one_process(members: Sequence[Peer]) -> None:
    processes = FRAMEWORKS["horovod"].processes(members)
    launched = any(member.role == "launcher" for member in members)
    assert len(processes) == (len(members) if launched else sum(member.slots for member in members))


@given(worlds("jax"))
def test_jax_ranks_are_unique_and_all_meet_at_rank_0(world: Sequence[Peer]) -> None:
    variables = environments("jax", world)
    assert [int(one["JAX_PROCESS_ID"]) for one in variables] == list(range(len(world)))
    assert {one["JAX_NUM_PROCESSES"] for one in variables} == {str(len(world))}
    assert {one["JAX_COORDINATOR_ADDRESS"].rpartition(":")[0] for one in variables} == {
        world[0].address
    }


@pytest.mark.guarantee("shared-network-stack")
@pytest.mark.parametrize("framework", ["jax", "mxnet", "pytorch"])
def test_jobs_of_the_embedded_cluster_use_different_ports(framework: str) -> None:
    def port(address: str) -> int:
        member = Peer("job-0", FRAMEWORKS[framework].roles[0], 0, address)
        (variables,) = environments(framework, FRAMEWORKS[framework].processes([member]))
        names = ("JAX_COORDINATOR_ADDRESS", "DMLC_PS_ROOT_PORT", "MASTER_PORT")
        return int(next(variables[name] for name in names if name in variables).rpartition(":")[2])

    assert port("10.0.0.1") == port("10.0.0.2"), (
        "the usual one, where each pod has a network of its own"
    )
    one, other = (
        derive_address(NetworkIdentity("default", job, "worker-0")) for job in ("first", "second")
    )
    assert port(one) == port(one) != port(other)
    first_of_clients = 32768
    assert all(port(f"127.1.{number}.1") < first_of_clients for number in range(256))


@pytest.mark.guarantee("shared-network-stack")
def test_tensorflow_jobs_of_one_host_have_different_ports_and_servers_keep_theirs() -> None:
    def ports(job: str, *members: tuple[str, int]) -> dict[str, list[str]]:
        def address(role: str, index: int) -> str:
            return derive_address(NetworkIdentity("default", job, f"{role}-{index}"))

        world = [
            Peer(f"{job}-{role}-{index}", role, index, address(role, index))
            for role, index in members
        ]
        cluster = json.loads(environments("tensorflow", world)[0]["TF_CONFIG"])["cluster"]
        return {
            role: [each.rpartition(":")[2] for each in addresses]
            for role, addresses in cluster.items()
        }

    servers = [("ps", 0), ("ps", 1)]
    before = ports("first", *servers, ("chief", 0), ("worker", 0), ("worker", 1))
    all_of_it = [port for of_role in before.values() for port in of_role]
    assert len(set(all_of_it)) == 5
    assert ports("first", ("chief", 0), ("worker", 1), *servers)["ps"] == before["ps"], (
        "they are not started again"
    )
    for roles in ([*servers, ("chief", 0), ("worker", 0)], [("worker", 0), ("worker", 1)]):
        other = ports("second", *roles)
        assert not set(all_of_it) & {port for of_role in other.values() for port in of_role}


@pytest.mark.parametrize("framework", ["jax", "mxnet", "pytorch", "tensorflow"])
def test_jobs_on_the_networks_of_their_nodes_use_ports_of_their_own(framework: str) -> None:
    """Also two members of one job on one node."""

    def ports(uid: str) -> set[int]:
        of_job = replace(FRAMEWORKS[framework], own_port=node_port(uid))
        members = [
            Peer(f"job-{role}-{index}", role, index, "10.0.0.1")
            for role in of_job.roles
            for index in range(2 if role in ("ps", "worker") else 1)
        ]
        (first, *_) = map(of_job.environment(of_job.processes(members)), range(len(members)))
        text = str(first).replace(" ", "")
        return {int(port) for port in re.findall(r"(?:PORT':'|10\.0\.0\.1:)(\d+)", text)}

    one, other = map(ports, ("0b8d2d4c-6a53", "3f6b6b0e-91c7"))
    assert len(one) == len(other) == (5 if framework == "tensorflow" else 1)
    assert not one & other
    assert all(10_260 < port < 30_000 for port in one | other), "a port of the node's programs"
    assert ports("0b8d2d4c-6a53") == one


@given(members_of("pytorch"))
def test_the_process_of_each_rank_is_the_same_by_number_in_order_and_by_member(
    members: Sequence[Peer],
) -> None:
    processes = FRAMEWORKS["pytorch"].processes(members)
    in_order = list(processes)
    assert [processes[rank] for rank in range(len(processes))] == in_order
    assert processes[1:] == in_order[1:]
    for position, member in enumerate(members):
        own = [in_order[rank] for rank in processes.ranks(position)]
        assert [each.name for each in own] == [member.name] * member.slots
        assert [each.local_rank for each in own] == list(range(member.slots))
    with pytest.raises(IndexError):
        processes[len(processes)]


@given(worlds("pytorch"))
def test_pytorch_ranks_are_unique_and_all_meet_at_rank_0(world: Sequence[Peer]) -> None:
    variables = environments("pytorch", world)
    assert [int(one["RANK"]) for one in variables] == list(range(len(world)))
    assert {(one["MASTER_ADDR"], one["MASTER_PORT"], one["WORLD_SIZE"]) for one in variables} == {
        (world[0].address, "29500", str(len(world)))
    }
    assert [(one["LOCAL_RANK"], one["LOCAL_WORLD_SIZE"]) for one in variables] == [
        (str(peer.local_rank), str(peer.slots)) for peer in world
    ]


@given(worlds("pytorch"))
def test_a_torchrun_that_the_agent_cannot_detect_is_a_node_with_the_rank_of_its_process(
    world: Sequence[Peer],
) -> None:
    variables = environments("pytorch", world)
    assert [int(one["PET_NODE_RANK"]) for one in variables] == list(range(len(world)))
    assert {(one["PET_NNODES"], one["PET_NPROC_PER_NODE"]) for one in variables} == {
        (str(len(world)), "1")
    }


@given(worlds("tensorflow"))
def test_tensorflow_tasks_are_unique_without_holes_and_find_themselves_in_the_cluster(
    world: Sequence[Peer],
) -> None:
    variables = [json.loads(one["TF_CONFIG"]) for one in environments("tensorflow", world)]
    tasks = [(one["task"]["type"], one["task"]["index"]) for one in variables]
    assert len(set(tasks)) == len(world)
    for role in {peer.role for peer in world}:
        assert sorted(index for kind, index in tasks if kind == role) == list(
            range(sum(p.role == role for p in world))
        )
    for peer, one in zip(world, variables, strict=True):
        assert one["cluster"] == variables[0]["cluster"]
        if peer.role == "evaluator":
            assert "evaluator" not in one["cluster"]
        else:
            address = one["cluster"][one["task"]["type"]][one["task"]["index"]]
            port = FIRST_PORTS[peer.role] + peer.index * peer.slots + peer.local_rank
            assert address == f"{peer.address}:{port}"


@pytest.mark.guarantee("mxnet-samples-count-once")
@given(worlds("mxnet"))
def test_mxnet_members_agree_on_the_scheduler_and_on_the_counts(world: Sequence[Peer]) -> None:
    variables = environments("mxnet", world)
    own = ("DMLC_ROLE", "DMLC_WORKER_ID", "DMLC_SERVER_ID")
    shared = {tuple(sorted((k, v) for k, v in one.items() if k not in own)) for one in variables}
    assert len(shared) == 1
    assert [one["DMLC_ROLE"] for one in variables] == [peer.role for peer in world]
    assert int(variables[0]["DMLC_NUM_WORKER"]) == sum(peer.role == "worker" for peer in world)
    assert int(variables[0]["DMLC_NUM_SERVER"]) == sum(peer.role == "server" for peer in world)
    schedulers = {peer.address for peer in world if peer.role == "scheduler"} or {world[0].address}
    assert variables[0]["DMLC_PS_ROOT_URI"] in schedulers


@pytest.mark.guarantee("mxnet-samples-count-once")
@given(worlds("mxnet"))
def test_mxnet_workers_and_servers_are_numbered_in_their_order_without_holes(
    world: Sequence[Peer],
) -> None:
    variables = environments("mxnet", world)
    for role, name in (("worker", "DMLC_WORKER_ID"), ("server", "DMLC_SERVER_ID")):
        numbered = {
            int(one[name]): (peer.index, peer.local_rank)
            for peer, one in zip(world, variables, strict=True)
            if peer.role == role
        }
        assert sorted(numbered) == list(range(sum(peer.role == role for peer in world)))
        assert [numbered[number] for number in sorted(numbered)] == sorted(numbered.values())
        assert all(
            name not in one for peer, one in zip(world, variables, strict=True) if peer.role != role
        )
    assert all("PS_VERBOSE" not in one for one in variables), "it is the user's"


@pytest.mark.guarantee("stock-horovodrun")
@given(worlds("horovod"))
def test_a_horovod_launcher_gets_no_variables_and_its_workers_cannot_train_alone(
    world: Sequence[Peer],
) -> None:
    for peer, variables in zip(world, environments("horovod", world), strict=True):
        assert variables == ({} if peer.role == "launcher" else {"HOROVOD_CONTROLLER": "launcher"})


@given(members_of("pytorch"))
def test_horovods_places_are_unique_in_each_of_its_three_numberings(
    members: Sequence[Peer],
) -> None:
    framework = framework_of("horovod", ["worker"])
    world = framework.processes(members)
    render = framework.environment(world)
    places = [
        {name: int(value) for name, value in render(rank).items() if value.isdigit()}
        for rank in range(len(world))
    ]
    assert [one["HOROVOD_RANK"] for one in places] == list(range(len(world)))
    assert {one["HOROVOD_SIZE"] for one in places} == {len(world)}
    for peer, one in zip(world, places, strict=True):
        beside = [
            other for them, other in zip(world, places, strict=True) if them.name == peer.name
        ]
        across = [
            other for other in places if other["HOROVOD_LOCAL_RANK"] == one["HOROVOD_LOCAL_RANK"]
        ]
        assert sorted(other["HOROVOD_LOCAL_RANK"] for other in beside) == list(
            range(one["HOROVOD_LOCAL_SIZE"])
        )
        assert sorted(other["HOROVOD_CROSS_RANK"] for other in across) == list(
            range(one["HOROVOD_CROSS_SIZE"])
        )


def test_horovod_requests_places_from_the_master_only_without_a_launcher() -> None:
    assert framework_of("horovod", ["worker"]).elastic_driver
    assert not framework_of("horovod", ["launcher", "worker"]).elastic_driver
    assert framework_of("jax", ["worker"]) is FRAMEWORKS["jax"]


@pytest.mark.guarantee("tensorflow-without-chief")
def test_parameter_servers_continue_only_with_a_chief_that_sends_them_the_new_workers() -> None:
    assert framework_of("tensorflow", ["chief", "worker", "ps"]).kept_roles == {"ps", "evaluator"}
    assert framework_of("tensorflow", ["worker", "ps"]).kept_roles == {"evaluator"}
