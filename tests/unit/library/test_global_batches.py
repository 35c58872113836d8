"""Tests how global batches are divided, and what a model contains after worlds of any sizes."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

import elasticjob
import pytest
from elasticjob._division import divide, micro_batches
from elasticjob_shards import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

POSITIVE = st.integers(1, 60)


@pytest.mark.guarantee("global-batches")
@given(batch=POSITIVE, processes=POSITIVE, most=st.none() | POSITIVE)
def test_the_micro_batches_of_any_world_are_the_global_batch(
    batch: int, processes: int, most: int | None
) -> None:
    division = divide(batch, processes, most)
    of_ranks = [list(micro_batches(batch, rank, processes, most)) for rank in range(processes)]
    assert {len(parts) for parts in of_ranks} == {division.accumulation}, "all ranks stay in step"
    parts = [part for parts in of_ranks for part in parts]
    trained = sorted(at for positions, scale, _ in parts if scale for at in positions)
    assert trained == list(range(batch))
    assert all(positions for positions, _, _ in parts), "no rank is without a sample"
    sizes = [len(positions) if scale else 0 for positions, scale, _ in parts]
    assert max(sizes) == division.micro_batch <= (most or batch)
    assert max(sizes) - min(sizes) <= 1
    assert sizes.count(division.micro_batch) == (division.remainder or len(sizes))
    # The processes' average of the scaled means is that of the batch.
    weights = [scale / len(positions) / processes for positions, scale, _ in parts if scale]
    assert weights == pytest.approx([1 / batch] * len(weights))
    fewer = (batch - 1) // (processes * most) if most else 0
    assert division.accumulation == fewer + 1, "no more micro-batches than needed"


@pytest.mark.guarantee("global-batches")
@settings(max_examples=40, deadline=None)
@given(
    size=POSITIVE,
    batch=POSITIVE,
    most=st.none() | POSITIVE,
    worlds=st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 40), st.integers(0, 4)), max_size=5
    ),
)
def test_a_model_has_each_sample_once_an_epoch_whatever_worlds_trained_it(
    size: int, batch: int, most: int | None, worlds: list[tuple[int, int, int]]
) -> None:
    """Each world has processes, trains some steps, and loses the last of them if it is killed."""
    dataset = Dataset("train", size, batch, epochs=2)
    models = [Counter[tuple[int, int]]()]  # by their steps
    for processes, steps, lost in [*worlds, (3, dataset.total, 0)]:
        ranks = [
            elasticjob.GlobalBatches(
                dataset,
                None,
                shuffle=True,
                step=len(models) - 1,
                place=(rank, processes),
                micro_batch=most,
            )
            for rank in range(processes)
        ]
        end = min(dataset.total, len(models) - 1 + steps)
        gradient = Counter[tuple[int, int]]()
        for parts in chain(zip(*ranks, strict=True), zip(*ranks, strict=True)):
            for part in parts:
                gradient.update((part.epoch, at) for at in part.indices if part.scale)
            if parts[0].last and len(models) <= end:
                models.append(models[-1] + gradient)
                gradient.clear()
        del models[max(1, len(models) - lost) :]
    assert models[-1] == Counter((epoch, index) for epoch in range(2) for index in range(size))


@pytest.mark.guarantee("global-batches")
def test_what_is_loaded_in_advance_is_not_reported() -> None:
    batches = elasticjob.global_batches("train", size=40, global_batch=4, step=2)
    ledger = batches._ledger
    assert ledger is not None
    for part, _ in zip(batches.parts(), range(8), strict=False):
        if part.batch < 5:  # the others are loaded in advance
            batches.deliver(part.batch, last=part.last)
    again = elasticjob.shards("train", size=40, shard_size=4, restore=ledger.checkpoint(10))
    first = again.take()
    assert first is not None
    assert (first.id, batches.step) == (4, 5), "a batch counts when the next one is requested"


@pytest.mark.parametrize(("rule", "factor"), [("none", 1), ("linear", 16), ("sqrt", 4)])
def test_the_learning_rate_follows_the_chosen_rule_and_is_a_metric(
    rule: str, factor: float
) -> None:
    options: dict[str, Any] = {"rank": 0, "processes": 3, "micro_batch": 100}
    options |= {"learning_rate": rule, "reference_batch": 256}
    batches = elasticjob.global_batches("train", size=9000, global_batch=4096, step=0, **options)
    division = {"global_batch": 4096, "micro_batch": 98, "accumulation": 14}
    assert batches.metrics == {**division, "learning_rate_factor": factor}
    assert len(batches) == 14 + 14 + 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"micro_batch": 0}, "micro_batch is 0; it must be 1 or more"),
        ({"step": 11}, "step is 11; it must be from 0 to 10, the steps in all"),
        ({"rank": 2, "processes": 2}, "rank is 2; it must be from 0 to 1 "),
        ({"learning_rate": "x"}, "learning_rate is 'x'; it must be one of none, linear, sqrt"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        elasticjob.global_batches("train", **{"size": 40, "global_batch": 4, "step": 0, **wrong})


def test_a_process_with_another_step_than_the_others_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ELASTICJOB_WORLD_SIZE", "2")
    for rank in range(2):
        monkeypatch.setenv("ELASTICJOB_RANK", str(rank))
        elasticjob.global_batches("agreed", size=40, global_batch=4, step=3)
    with pytest.raises(ValueError, match="step of data set agreed is 4 in rank 1 and 3 in another"):
        elasticjob.global_batches("agreed", size=40, global_batch=4, step=4)
