"""Runs random histories of a job with every kind of fault, and checks invariants at each write.

`python -m pytest tests/unit -k simulator --histories=20000` runs more of them, `--history-seed=N`
repeats one.
"""

from __future__ import annotations

import pytest

from tests.support.simulator import random_history
from tests.support.thorough import some_of

BATCHES = 20


@pytest.mark.guarantee(
    "converges-to-desired-pods", "failed-pod-replaced", "operator-killed-between-writes"
)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_simulator_any_history_keeps_the_promises_and_comes_to_rest(
    batch: int, request: pytest.FixtureRequest, thorough: bool
) -> None:
    only = request.config.getoption("history_seed", None)
    histories = request.config.getoption("histories", None) or (500 if thorough else 20)
    seeds = range(batch, histories, BATCHES) if only is None else range(only, only + (batch == 0))
    for seed in seeds:
        try:
            random_history.run(seed)
        except AssertionError as error:
            pytest.fail(
                f"{error}\nrepeat with: python -m pytest tests/unit -k simulator "
                f"--history-seed={seed}",
                False,
            )


@pytest.mark.parametrize("seed", some_of(range(5), every=4))
def test_simulator_repeats_the_history_of_a_seed_to_the_last_write(seed: int) -> None:
    first = random_history.History(seed)
    first.run()
    second = random_history.History(seed)
    second.run()
    assert first.last_lines() == second.last_lines()
    assert first.kube.raw == second.kube.raw
