"""Tests that each shard is in the model once, in spite of returns to the last commit."""

from __future__ import annotations

import elasticjob
import pytest
from elasticjob._committed_state import CommittedShards, Offer
from elasticjob.shards import Shard

from tests.support.wait import wait_until


def opened(name: str, size: int = 4) -> CommittedShards[Shard]:
    return CommittedShards(elasticjob.shards(name, size=size, shard_size=1))


def take(shards: CommittedShards[Shard]) -> Shard:
    shard = shards.take(timeout=60)
    assert shard is not None
    return shard


@pytest.mark.guarantee("pytorch-worlds")
def test_shards_that_no_commit_contains_are_taken_again() -> None:
    shards = opened("again")
    committed, done, in_hand = (take(shards) for _ in range(3))
    shards.done(committed)
    shards.commit([shards.offer()])
    kept = {process: set(numbers) for process, numbers in shards.committed.items()}
    shards.done(done)
    shards.return_to(kept)
    rest = [take(shards).id for _ in range(3)]
    assert sorted(rest) == sorted({0, 1, 2, 3} - {committed.id})
    assert set(rest[:2]) == {done.id, in_hand.id}


def test_a_shard_is_reported_when_another_process_has_kept_the_commit_that_contains_it() -> None:
    shards = opened("half", size=1)
    shard = take(shards)
    shards.done(shard)
    offer = shards.offer()
    # This process has not noticed the end of the commit, but the one whose state it gets has.
    shards.return_to({offer.process: set(offer.shards)})
    shards.commit([shards.offer()])
    assert shards.take(timeout=60) is None
    wait_until("the report", lambda: shards.finished)


@pytest.mark.guarantee("pytorch-worlds")
def test_a_shard_is_not_reported_while_the_others_may_return_to_the_commit_before() -> None:
    shards = opened("pending", size=1)
    shard = take(shards)
    shards.done(shard)
    shards.commit([shards.offer(), Offer("other", ())])
    # The others have lost this commit: the model that this process gets does not contain it.
    shards.return_to({})
    assert take(shards) == shard
    shards.done(shard)
    for _ in range(2):
        shards.commit([shards.offer(), Offer("other", ())])
    wait_until("the report", lambda: shards.finished)


@pytest.mark.guarantee("pytorch-worlds")
def test_a_shard_of_a_lost_process_is_not_trained_again_if_its_commit_is_kept() -> None:
    shards = opened("lost", size=3)
    shards.commit([shards.offer(), Offer("lost", (0, 2))])
    shard = take(shards)
    assert shard.id == 1
    shards.done(shard)
    shards.commit([shards.offer()])
    assert shards.take(timeout=60) is None


def test_a_shard_is_forgotten_when_the_master_knows_it() -> None:
    shards = opened("forgotten")
    for _ in range(2):
        shards.done(take(shards))
        shards.commit([shards.offer()])
        assert shards.flush(60)
    shards.commit([shards.offer()])
    assert not any(shards.committed.values())
