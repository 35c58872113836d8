"""Computes the status of an ElasticPool."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.elasticpool import ElasticPool, ElasticPoolStatus
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_operator.core.sharing.model import Pool, PooledJob, Sharing
from elasticjob_operator.core.sharing.room import total

_NO_CAPACITY = (
    "no capacity is known: give spec.capacity, or let the operator list and watch nodes; "
    "no job of the pool starts"
)


def status_of(
    pool: ElasticPool,
    resources: Sequence[str],
    rules: Pool,
    jobs: Sequence[PooledJob],
    sharing: Sharing,
    now: float,
    acts: Sequence[str],
) -> ElasticPoolStatus:
    """Return the status after a decision; `acts` are the plans that were made."""
    waiting = sorted(
        (job for job in jobs if job.name in sharing.waiting),
        key=lambda job: (now if job.waits_since is None else job.waits_since, job.since, job.name),
    )
    status = replace(
        pool.status,
        jobs=len(jobs),
        waiting=len(waiting),
        used=_used(resources, rules, jobs),
        longest_waiting=_text(waiting[0], sharing) if waiting else "",
        message="" if any(rules.capacity) else _NO_CAPACITY,
    )
    if acts:
        status = replace(status, last_act=acts[-1][:1024], last_act_time=format_time(now))
    return status


def no_effect(other: ObjectMeta) -> str:
    """Return why a pool without `capacity` has no effect; `other` is the one that has."""
    return (
        f"has no effect: ElasticPool {other.namespace}/{other.name} counts the nodes, too, and "
        "would promise the same room; give spec.capacity to one of them"
    )


def _text(job: PooledJob, sharing: Sharing) -> str:
    return f"{job.name}: {sharing.waiting[job.name]}"[:512]


def _used(resources: Sequence[str], rules: Pool, jobs: Sequence[PooledJob]) -> str:
    """Return what jobs hold of each resource that any of them needs, such as `cpu 3.2/4`."""
    held = [0] * len(resources)
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
