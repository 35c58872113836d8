"""Reads the rules of an ElasticPool and what it has, and computes its status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal

from elasticjob_api.elasticpool import ElasticPool, ElasticPoolStatus
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.quantity import parse_quantity
from elasticjob_api.resources import name_error
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_operator.core.sharing.model import Amounts, Pool, PooledJob, Sharing, total

_NO_CAPACITY = (
    "no capacity is known: give spec.capacity, or let the operator list and watch nodes; "
    "no job of the pool starts"
)
_THOUSANDTHS = 1000


def rules_of(
    pool: ElasticPool, nodes: Mapping[str, Mapping[str, int | str]]
) -> tuple[tuple[str, ...], Pool]:
    """Return the resources that a pool counts, and its rules; `nodes` may get members."""
    capacity = _capacity_of(pool, nodes)
    resources = tuple(sorted(capacity))
    return resources, with_capacity(pool, in_thousandths(capacity, resources))


def with_capacity(pool: ElasticPool, capacity: Amounts) -> Pool:
    """Return the rules of a pool that has this much."""
    return Pool(
        pool.metadata.name,
        pool.spec.policy,
        capacity,
        pool.spec.reclaim_after_seconds,
        pool.spec.cooldown_seconds,
        suspends=pool.spec.suspend_lower_priority,
    )


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


def status_of(
    pool: ElasticPool,
    resources: Sequence[str],
    rules: Pool,
    jobs: Sequence[PooledJob],
    sharing: Sharing,
    now: float,
    acts: Sequence[str],
    others: Amounts = (),
) -> ElasticPoolStatus:
    """Return the status after a decision.

    `acts` are the plans that were made, and `others` what is held besides by Workloads of Kueue.
    """
    waiting = sorted(
        (job for job in jobs if job.name in sharing.waiting),
        key=lambda job: (now if job.waits_since is None else job.waits_since, job.since, job.name),
    )
    status = replace(
        pool.status,
        jobs=len(jobs),
        waiting=len(waiting),
        used=_used(resources, rules, jobs, others),
        longest_waiting=_text(waiting[0], sharing) if waiting else "",
        message=_unknown(pool) if any(rules.capacity) else _NO_CAPACITY,
    )
    if acts:
        status = replace(status, last_act=acts[-1][:1024], last_act_time=format_time(now))
    return status


def _unknown(pool: ElasticPool) -> str:
    """Return which name in `capacity` is that of no resource; empty if there is none."""
    errors = (name_error(name) for name in pool.spec.capacity if name != "pods")
    error = next(filter(None, errors), None)
    return f"spec.capacity: {error}; it bounds nothing" if error else ""


def no_effect(pool: ElasticPool, other: ObjectMeta) -> str:
    """Return why a pool without `capacity` has no effect; `other` is the one that has."""
    if queue := pool.spec.cluster_queue:
        return (
            f"has no effect: ElasticPool {other.namespace}/{other.name} names ClusterQueue "
            f"{queue!r}, too, and both would give for the same Workload; keep one of them"
        )
    return (
        f"has no effect: ElasticPool {other.namespace}/{other.name} counts the nodes, too, and "
        "would promise the same room; give spec.capacity to one of them"
    )


def _text(job: PooledJob, sharing: Sharing) -> str:
    return f"{job.name}: {sharing.waiting[job.name]}"[:512]


def _used(resources: Sequence[str], rules: Pool, jobs: Sequence[PooledJob], others: Amounts) -> str:
    """Return what is held of each resource that anybody needs, such as `cpu 3.2/4`."""
    held = list(others) or [0] * len(resources)
    for job in jobs:
        for position, amount in enumerate(total(job, job.held)):
            held[position] += amount
    return ", ".join(
        f"{name} {_amount(name, used)}/{_amount(name, most)}"
        for name, used, most in zip(resources, held, rules.capacity, strict=True)
        if used and name != "pods"
    )[:512]


def _amount(name: str, thousandths: int) -> str:
    number = thousandths / 1000
    return f"{number / 2**30:.4g}Gi" if name == "memory" else f"{number:.6g}"
