"""Reads from an ElasticPool its rules, and what it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal

from elasticjob_api.elasticpool import ElasticPool
from elasticjob_api.quantity import parse_quantity

from elasticjob_operator.core.sharing.model import Amounts, Pool

_THOUSANDTHS = 1000


def rules_of(
    pool: ElasticPool, nodes: Mapping[str, Mapping[str, int | str]]
) -> tuple[tuple[str, ...], Pool]:
    """Return the resources that a pool counts, and its rules; `nodes` may get members."""
    capacity = _capacity_of(pool, nodes)
    resources = tuple(sorted(capacity))
    rules = Pool(
        pool.metadata.name,
        pool.spec.policy,
        in_thousandths(capacity, resources),
        pool.spec.reclaim_after_seconds,
        pool.spec.cooldown_seconds,
    )
    return resources, rules


def _capacity_of(
    pool: ElasticPool, nodes: Mapping[str, Mapping[str, int | str]]
) -> dict[str, Decimal]:
    """Return what a pool has: what its spec says, or what the nodes have together."""
    if pool.spec.capacity:
        return {name: parse_quantity(amount) for name, amount in pool.spec.capacity.items()}
    total: dict[str, Decimal] = {}
    for allocatable in nodes.values():
        for name, amount in allocatable.items():
            total[name] = total.get(name, Decimal(0)) + parse_quantity(amount)
    return total


def in_thousandths(amounts: Mapping[str, Decimal], resources: Sequence[str]) -> Amounts:
    """Return the amounts of these resources, rounded up."""
    return tuple(
        int((amounts.get(name, Decimal(0)) * _THOUSANDTHS).to_integral_value(ROUND_CEILING))
        for name in resources
    )
