"""Figure about the auto-scaler in simulated jobs: how near to the best size it comes, in the worst case."""

from __future__ import annotations

import sys
from statistics import median

from bench.autoscale_simulator import cases, run
from bench.figure import Result

_SEEDS = 8
_GOAL = 0.95


async def worst_ratio() -> Result:
    """Throughput reached, as a part of the best one that bounds and objective allow: of each world the median.

    Single searches and the regret go to stderr.
    """
    searches = {case.name: [run(case, seed) for seed in range(_SEEDS if case.noise else 1)] for case in cases()}
    everyone = [(name, result) for name, results in searches.items() for result in results]
    name, worst = min(everyone, key=lambda item: item[1].ratio)
    low = sum(result.ratio < _GOAL for _, result in everyone)
    regrets = [result.regret for _, result in everyone]
    sys.stderr.write(
        f"auto-scaler: {len(everyone)} searches; {low} of them end below {_GOAL}; the worst at {worst.ratio:.3f}: "
        f"{name}, {worst.sizes[-1][-1]} members instead of {worst.best}; regret in a day: "
        f"median {median(regrets):.1%}, worst {max(regrets):.1%}\n"
    )
    value = min(median(result.ratio for result in results) for results in searches.values())
    return Result(value=value, unit="of best", limit=1.0, ratio=value, n=len(everyone))
