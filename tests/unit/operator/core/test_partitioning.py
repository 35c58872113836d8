"""The partitions of namespaces, and how processes share them without talking to each other."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from elasticjob_operator.config import parse
from elasticjob_operator.core.partitioning import MAX_PARTITIONS, Partition, Scope, Shares


def test_each_namespace_belongs_to_exactly_one_partition_and_always_to_the_same_one() -> None:
    namespaces = [f"team-{number}" for number in range(10_000)]
    for number in (1, 2, 3, 7, MAX_PARTITIONS):
        partitions = [Partition(index, number) for index in range(number)]
        owners = Counter(
            partition
            for namespace in namespaces
            for partition in partitions
            if partition.has(namespace)
        )
        assert owners.total() == len(namespaces)
        even = len(namespaces) / number
        assert all(0.5 * even < owners[partition] < 1.5 * even for partition in partitions)
    # A version with another hash would work on the jobs of another process.
    found = [number for number in range(12) if Partition(1, 3).has(f"team-{number}")]
    assert found == [1, 3, 5, 7, 9]


def test_without_partitions_no_watch_checks_a_namespace() -> None:
    assert Scope().only is None
    assert Scope("team").only is None
    assert Scope(None, Partition(1, 2)).only is not None


@pytest.mark.parametrize("processes", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("number", [2, 3, 8, 16])
def test_however_partitions_begin_wishes_end_in_equal_shares(number: int, processes: int) -> None:
    draw = random.Random(number * 100 + processes)
    for leaders in (
        [0] * number,
        [draw.randrange(processes) for _ in range(number)],
    ):
        moves = _settled(leaders, [Shares(number) for _ in range(processes)], draw)
        led = Counter(leaders)
        numbers = [led[process] for process in range(processes)]
        assert max(numbers) - min(numbers) <= 1
        assert moves <= 2 * number


def test_what_a_dead_process_has_led_is_shared_by_the_others() -> None:
    first = Shares(6, led={0, 1})
    for partition, other in {2: "second", 3: "second", 4: "dead", 5: "dead"}.items():
        first.observe(partition, other, is_wanted=False)
    assert not first.may_take()
    for partition in (4, 5):
        first.observe(partition, "", is_wanted=False)
    assert first.may_take()
    first.led.add(4)
    assert not first.may_take()


def test_there_is_one_wish_at_a_time_until_it_is_granted_or_dropped() -> None:
    shares = Shares(4)
    for partition in range(4):
        shares.observe(partition, "other", is_wanted=False)
    assert shares.ask(0)
    assert not shares.ask(1)
    shares.observe(0, "other", is_wanted=True)
    assert not shares.ask(1)
    shares.observe(0, "other", is_wanted=False)
    assert shares.ask(1)


def test_a_process_never_gives_up_its_last_partition() -> None:
    shares = Shares(4, led={1, 2})
    assert shares.give(1)
    assert not shares.give(2)
    assert shares.led == {2}


@pytest.mark.parametrize("value", ["0", "65", "two", "-1", "1.5"])
def test_a_wrong_number_of_partitions_is_refused_with_its_bounds(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse([f"--partitions={value}"])
    assert f"'{value}' is not a whole number from 1 to 64" in capsys.readouterr().err


def test_partitions_of_one_namespace_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--partitions", "2", "--namespace", "team"])
    assert "all jobs of a namespace belong to one partition" in capsys.readouterr().err
    assert parse(["--namespace", "team"]).partitions == 1
    assert parse(["--partitions", "2"]).partitions == 2


def _settled(leaders: list[int], processes: list[Shares], draw: random.Random) -> int:
    """Let the processes look at the partitions in random order; return how many of them moved."""
    for partition, leader in enumerate(leaders):
        processes[leader].led.add(partition)
    wishes: dict[int, int] = {}
    moves = 0
    for _ in range(40 * len(leaders)):
        process = draw.randrange(len(processes))
        for partition, leader in enumerate(leaders):
            if leader == process:
                continue
            is_wanted = wishes.get(partition) == process
            processes[process].observe(partition, str(leader), is_wanted=is_wanted)
            if partition not in wishes and processes[process].ask(partition):
                wishes[partition] = process
        for partition, wanted_by in list(wishes.items()):
            if draw.random() < 0.5:  # the leader renews its Lease
                continue
            del wishes[partition]
            if processes[leaders[partition]].give(partition):
                leaders[partition] = wanted_by
                processes[wanted_by].observe(partition, "", is_wanted=True)  # it is released
                processes[wanted_by].led.add(partition)
                moves += 1
    return moves
