"""The environments of a member's processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticjob_agent import config
from elasticjob_agent.process_environment import (
    MAX_ARG_STRLEN,
    MAX_CHARACTERS,
    environments,
    reads_hosts,
    render,
)
from elasticjob_api import names
from elasticjob_api.frameworks import FRAMEWORKS, Peer, launchers
from elasticjob_api.references import TooLongError
from elasticjob_api.v1 import agent_pb2 as pb

from tests.support.agent_process import agent_environment

SLOTS = (3, 2, 1)


def start(framework: str, position: int, network: str) -> pb.Start:
    """Return what the second of three members gets, which have different numbers of processes."""
    peers = [
        Peer(f"job-worker-{i}", "worker", i, f"{network}.{i}", slots)
        for i, slots in enumerate(SLOTS)
    ]
    processes = FRAMEWORKS[framework].processes(peers)
    render = FRAMEWORKS[framework].environment(processes)
    first = sum(SLOTS[:position])
    members = [
        pb.Member(
            pod_name=peer.name,
            pod_uid=f"uid-{peer.index}-0",
            address=peer.address,
            processes=peer.slots,
        )
        for peer in peers
    ]
    return pb.Start(
        world=pb.World(round=7, members=members),
        rank=first,
        environment=render(first),
        other_environments=[
            pb.ProcessEnvironment(variables=render(first + local_rank))
            for local_rank in range(1, SLOTS[position])
        ],
    )


def rendered(
    framework: str, position: int, *command: str, network: str = "10.0.0", **container: str
) -> list[dict[str, str]]:
    variables = agent_environment(
        {names.ENV_FRAMEWORK: framework, **container}, index=position, master="10.0.0.9"
    )
    return environments(
        start(framework, position, network),
        config.load(variables),
        command,
        variables,
        Path("/tmp/socket"),
    )


@pytest.mark.guarantee("several-processes-per-pod")
def test_ranks_of_a_member_are_adjacent_and_count_all_processes_before_it() -> None:
    ranks = [
        (
            one[names.ENV_RANK],
            one[names.ENV_LOCAL_RANK],
            one[names.ENV_LOCAL_SIZE],
            one["RANK"],
            one["LOCAL_RANK"],
        )
        for position in range(3)
        for one in rendered("pytorch", position, "python", "train.py")
    ]
    assert ranks == [
        ("0", "0", "3", "0", "0"),
        ("1", "1", "3", "1", "1"),
        ("2", "2", "3", "2", "2"),
        ("3", "0", "2", "3", "0"),
        ("4", "1", "2", "4", "1"),
        ("5", "0", "1", "5", "0"),
    ]
    worlds = {
        (one[names.ENV_WORLD_SIZE], one["WORLD_SIZE"], one["MASTER_ADDR"])
        for position in range(3)
        for one in rendered("pytorch", position, "python", "train.py")
    }
    assert worlds == {("6", "6", "10.0.0.0")}


def test_lightning_computes_the_rank_of_each_process_from_the_place_of_its_pod() -> None:
    """It reads neither RANK nor WORLD_SIZE without a launcher of its own."""
    places = [
        [(one["NODE_RANK"], one["LOCAL_RANK"]) for one in rendered("pytorch", at, "python", "t.py")]
        for at in range(3)
    ]
    assert places == [
        [("0", "0"), ("0", "1"), ("0", "2")],
        [("1", "0"), ("1", "1")],
        [("2", "0")],
    ]
    (own,) = rendered("pytorch", 2, "python", "t.py", NODE_RANK="7")
    assert "NODE_RANK" not in own, "the container's"
    assert "NODE_RANK" not in rendered("jax", 2, "python", "t.py")[0]


def test_torchrun_is_one_process_a_member_that_starts_the_members_processes() -> None:
    torchruns = [rendered("pytorch", position, "torchrun", "train.py") for position in range(3)]
    assert [len(one) for one in torchruns] == [1, 1, 1]
    options = (
        "PET_NNODES",
        "PET_NODE_RANK",
        "PET_NPROC_PER_NODE",
        "PET_RDZV_ENDPOINT",
        "PET_MAX_RESTARTS",
    )
    assert [tuple(one[0][option] for option in options) for one in torchruns] == [
        ("3", "0", "3", "10.0.0.0:29500", "0"),
        ("3", "1", "2", "10.0.0.0:29500", "0"),
        ("3", "2", "1", "10.0.0.0:29500", "0"),
    ]
    for (one,) in torchruns:
        assert names.ENV_RANK not in one, "its processes would all believe to be this one"
        assert one[names.ENV_ROUND] == "7"


@pytest.mark.guarantee("shared-network-stack")
def test_torchrun_meets_where_its_processes_would_on_the_embedded_cluster_too() -> None:
    endpoint = "PET_RDZV_ENDPOINT"
    (one,) = rendered("pytorch", 0, "torchrun", "train.py", network="127.1.2")
    alone = rendered("pytorch", 0, "python", "train.py", network="127.1.2")[0]
    assert one[endpoint] == f"{alone['MASTER_ADDR']}:{alone['MASTER_PORT']}" != "127.1.2.0:29500"


@pytest.mark.guarantee("launchers-of-pytorch")
def test_another_launcher_is_one_process_a_member_with_the_ranks_of_its_first_process() -> None:
    launched = [rendered("pytorch", at, "accelerate", "launch", "t.py") for at in range(3)]
    assert [len(one) for one in launched] == [1, 1, 1]
    command = [f"--$({launchers.MODE})", "--num_processes=$(WORLD_SIZE)"]
    assert render(command, {}, launched[1][0])[0] == ["--multi_gpu", "--num_processes=6"]
    own = ("RANK", "LOCAL_WORLD_SIZE", "PET_NODE_RANK", "PET_NPROC_PER_NODE")
    assert [tuple(one[name] for name in own) for (one,) in launched] == [
        ("0", "3", "0", "3"),
        ("3", "2", "1", "2"),
        ("5", "1", "2", "1"),
    ]
    assert all(names.ENV_RANK not in one for (one,) in launched)


def test_the_user_may_override_torchruns_defaults() -> None:
    (one,) = rendered("pytorch", 0, "torchrun", "train.py", PET_MONITOR_INTERVAL="2")
    assert (
        render(["torchrun"], {"PET_MONITOR_INTERVAL": "2"}, one)[1]["PET_MONITOR_INTERVAL"] == "2"
    )


def test_torchrun_is_an_ordinary_command_for_other_frameworks() -> None:
    assert len(rendered("custom", 0, "torchrun", "train.py")) == 3


@pytest.mark.parametrize(
    ("users", "shown"),
    [({}, ["0,1", "2,3", "4,5"]), ({"CUDA_VISIBLE_DEVICES": "1,0,5"}, ["1", "0", "5"])],
)
def test_gpus_are_divided_where_the_operator_says_so(
    users: dict[str, str], shown: list[str]
) -> None:
    divided = rendered("jax", 0, "python", **{names.ENV_DEVICES: "CUDA_VISIBLE_DEVICES=6"}, **users)
    assert [one["CUDA_VISIBLE_DEVICES"] for one in divided] == shown


def test_an_only_process_sees_all_gpus() -> None:
    (one,) = rendered("jax", 2, "python", **{names.ENV_DEVICES: "CUDA_VISIBLE_DEVICES=6"})
    assert "CUDA_VISIBLE_DEVICES" not in one


def test_a_master_of_an_earlier_version_starts_one_process_in_a_world_of_as_many_as_members() -> (
    None
):
    old = pb.Start(
        world=pb.World(round=1, members=[pb.Member(pod_name="job-worker-0"), pb.Member()]), rank=1
    )
    variables = agent_environment({names.ENV_SLOTS: "4"}, master="10.0.0.9")
    (one,) = environments(old, config.load(variables), ["python"], variables, Path("/tmp/socket"))
    assert (one[names.ENV_RANK], one[names.ENV_WORLD_SIZE], one[names.ENV_LOCAL_SIZE]) == (
        "1",
        "2",
        "1",
    )


def world(*members: tuple[str, int, str]) -> pb.Start:
    return pb.Start(
        world=pb.World(
            round=1,
            members=[
                pb.Member(role=role, index=index, address=address)
                for role, index, address in members
            ],
        )
    )


def hosts(start: pb.Start) -> dict[str, str]:
    """Return the variables with the addresses of a world's members."""
    variables = agent_environment({}, master="10.0.0.9")
    (one,) = environments(start, config.load(variables), ["python"], variables, Path("/tmp/socket"))
    return {name: value for name, value in one.items() if "HOST" in name}


@pytest.mark.guarantee("lists-of-large-worlds")
@pytest.mark.parametrize("command", ["python", "torchrun"])
def test_a_world_without_its_list_differs_by_the_lists_of_hosts_only(command: str) -> None:
    variables = agent_environment(
        {names.ENV_FRAMEWORK: "pytorch"}, index=1, incarnation=0, master="10.0.0.9"
    )
    whole = start("pytorch", 1, "10.0.0")
    for member in whole.world.members:
        member.role = "worker"
    short = pb.Start()
    short.CopyFrom(whole)
    del short.world.members[1:]
    short.world.member_count = 3
    short.world.process_count = sum(SLOTS)
    short.position = 1
    of_whole, of_short = (
        environments(each, config.load(variables), [command], variables, Path("/tmp/socket"))
        for each in (whole, short)
    )
    for each in of_whole:
        assert each.pop("ELASTICJOB_WORKER_HOSTS").count(",") == 2
    assert of_short == of_whole


@pytest.mark.guarantee("references-in-commands")
@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("--ps=$(ELASTICJOB_PS_HOSTS)", True),
        ("for h in $ELASTICJOB_MY_PS_HOSTS", True),
        ("", False),
    ],
)
def test_a_command_with_lists_of_hosts_is_started_with_the_whole_list(
    text: str, reads: bool
) -> None:
    assert reads_hosts(["sh", "-c", text], {}) == reads_hosts([], {"ARGS": text}) == reads


@pytest.mark.guarantee("references-in-commands")
def test_each_role_has_a_variable_with_the_addresses_of_its_pods_by_index() -> None:
    start = world(
        ("worker", 2, "10.0.0.2"),
        ("my-ps", 1, "10.0.1.1"),
        ("worker", 0, "fd00::1"),
        ("my-ps", 0, "10.0.1.0"),
    )
    assert hosts(start) == {
        "ELASTICJOB_COORDINATOR_HOST": "10.0.0.2",
        "ELASTICJOB_WORKER_HOSTS": "fd00::1,10.0.0.2",
        "ELASTICJOB_MY_PS_HOSTS": "10.0.1.0,10.0.1.1",
    }


def test_only_addresses_beyond_the_kernels_limit_are_dropped() -> None:
    name = "ELASTICJOB_WORKER_HOSTS"
    most = (MAX_ARG_STRLEN - len(f"{name}=") - 1 + 1) // len("10.10.10.10,")
    as_many = [("worker", index, "10.10.10.10") for index in range(most)]
    assert hosts(world(*as_many))[name].count(",") == most - 1
    assert list(hosts(world(*as_many, ("worker", most, "10.10.10.10")))) == [
        "ELASTICJOB_COORDINATOR_HOST"
    ]


def test_an_invalid_role_makes_no_variable() -> None:
    assert list(hosts(world(("a=b", 0, "10.0.0.1"), ("", 1, "10.0.0.2")))) == [
        "ELASTICJOB_COORDINATOR_HOST"
    ]


def test_every_process_has_its_own_command_and_environment() -> None:
    command = ["train", "--rank=$(RANK)", "$(HOME)"]
    container = {"LOG": "/log/$(ELASTICJOB_RANK)", "RANK": "hers"}
    of_second = [render(command, container, one) for one in rendered("pytorch", 1, "train")]
    assert [made for made, _ in of_second] == [
        ["train", f"--rank={rank}", "$(HOME)"] for rank in (3, 4)
    ]
    assert [(made["LOG"], made["RANK"]) for _, made in of_second] == [
        ("/log/3", "3"),
        ("/log/4", "4"),
    ]


@pytest.mark.parametrize(
    ("command", "container", "named"),
    [
        (
            ["train", "$(TF_CONFIG)" * 70],
            {},
            "argument 1: with its references replaced it would have 7000000",
        ),
        (
            ["train", *["$(TF_CONFIG)"] * 70],
            {},
            "argument 63: with its references replaced it would have 100000",
        ),
        (
            ["train"],
            {"A": "", "B": "$(TF_CONFIG)" * 70},
            "B: with its references replaced it would have 7000000",
        ),
    ],
)
def test_references_cannot_make_a_process_larger_than_the_kernel_takes(
    command: list[str], container: dict[str, str], named: str
) -> None:
    with pytest.raises(TooLongError, match=named):
        render(command, container, {"TF_CONFIG": "x" * 100_000})
    assert MAX_CHARACTERS < 7_000_000
