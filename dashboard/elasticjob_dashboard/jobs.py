"""The data of the page of all jobs: a row for each job, those that need a look first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from elasticjob_api.elasticjob import ElasticJob, Progress
from elasticjob_api.elasticpool import ElasticPool
from elasticjob_api.gpus import VISIBLE_DEVICES
from elasticjob_api.job_status import ENDED
from elasticjob_api.meta import Json
from elasticjob_api.quantity import parse_quantity
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.times import time_or_none

from elasticjob_dashboard.data import Sections

MOST_JOBS = 500
"""The number of rows of the page. A browser shows so many without delay."""
MOST_POOLS = 50
_MOST_PLANS = 5
_LONGEST_TEXT = 300
_ENDED_PLACE = 4
_NOT_YET = ("Pending", "Starting", "Retrying")
_FRESH_SECONDS = 86_400.0
"""A job that failed longer ago no longer comes first."""


@dataclass(frozen=True)
class Rights:
    """What the user may do with the jobs of a namespace."""

    patch: bool = False
    scale: bool = False


@dataclass(frozen=True)
class ShownJob:
    """What the page shows of a job: little, also of one that is as large as an object can be.

    Attributes:
        row: its row, for a user with all rights.
        place: the place of its phase among those that need no look.
        needs_a_look: whether it comes first.
        failed_at: if it has failed, when: lately it comes first; 0 if the time is unknown.
    """

    namespace: str
    name: str
    row: Json
    place: int
    needs_a_look: bool
    failed_at: float | None


@dataclass(frozen=True)
class ShownPlan:
    """What the page shows of a plan that waits or is executed."""

    namespace: str
    job: str
    created: str
    text: str


@dataclass(frozen=True)
class ShownPool:
    """What the page shows of a pool; those with jobs that wait come first."""

    place: tuple[bool, str, str]
    row: Json


@dataclass(frozen=True)
class VisibleJobs:
    """The jobs that a user may list, as they are now.

    Attributes:
        jobs: all of them; at most `MOST_JOBS` are shown.
        plans: the plans of these jobs, and others.
        pools: the pools of the same namespaces; at most `MOST_POOLS` are shown.
        rights: the user's rights by namespace.
        more: the number of jobs that were not read.
        notes: what is missing, and why.
    """

    jobs: Sequence[ShownJob] = ()
    plans: Sequence[ShownPlan] = ()
    pools: Sequence[ShownPool] = ()
    rights: Mapping[str, Rights] = field(default_factory=dict)
    more: int = 0
    notes: Collection[str] = ()


def jobs_sections(visible: VisibleJobs, now: float) -> Sections:
    """Return the page's data: `order` names the jobs' sections, so a change sends its job only."""
    waiting: dict[tuple[str, str], list[ShownPlan]] = {}
    for plan in visible.plans:
        waiting.setdefault((plan.namespace, plan.job), []).append(plan)
    rows = {
        f"{job.namespace}/{job.name}": job
        for job in sorted(visible.jobs, key=lambda job: _place(job, now))
    }
    shown = list(rows)[:MOST_JOBS]
    sections = {
        "order": shown,
        "more": visible.more + len(rows) - len(shown),
        "notes": list(visible.notes),
        "pools": [
            pool.row for pool in sorted(visible.pools, key=lambda pool: pool.place)[:MOST_POOLS]
        ],
    }
    for key in shown:
        job = rows[key]
        plans = [] if job.place == _ENDED_PLACE else waiting.get((job.namespace, job.name), [])
        rights = visible.rights.get(job.namespace, Rights())
        sections[key] = {**_allowed(job.row, rights), "waiting": _texts(plans)}
    return {name: msgspec.json.encode(part) for name, part in sections.items()}


def shown_job(job: ElasticJob) -> ShownJob:
    """Return what the page shows of a job."""
    status = job.status
    phase = status.phase or "Pending"
    place = _ENDED_PLACE
    if phase not in ENDED:
        place = 1 if phase in _NOT_YET else 3 if phase == "Suspended" else 2
    failed_at = (time_or_none(status.completion_time) or 0.0) if phase == "Failed" else None
    metadata = job.metadata
    looks = _needs_a_look(job)
    return ShownJob(metadata.namespace, metadata.name, _row(job), place, looks, failed_at)


def shown_plan(plan: ScalePlan) -> ShownPlan | None:
    """Return what the page shows of a plan; None if it has ended."""
    status = plan.status
    if status.phase in FINISHED:
        return None
    waits = f"waits for {status.waiting_for}" if status.waiting_for else status.message
    parts = (plan.metadata.name, status.phase or "Pending", status.change, waits)
    text = ", ".join(filter(None, parts))[:_LONGEST_TEXT]
    metadata = plan.metadata
    return ShownPlan(metadata.namespace, plan.spec.job_name, metadata.creation_timestamp, text)


def shown_pool(pool: ElasticPool) -> ShownPool:
    """Return what the page shows of a pool."""
    status = pool.status
    metadata = pool.metadata
    waits = f"{status.waiting}, first {status.longest_waiting}" if status.waiting else ""
    row = {
        "name": f"{metadata.namespace}/{metadata.name}",
        "used": (status.message or status.used)[:_LONGEST_TEXT],
        "waits": waits[:_LONGEST_TEXT],
        "act": status.last_act[:_LONGEST_TEXT],
        "actedAt": time_or_none(status.last_act_time),
    }
    return ShownPool((not status.waiting, metadata.namespace, metadata.name), row)


def offered(job: ElasticJob, rights: Rights) -> Json:
    """Return which job this is, and the changes that a user with these rights may make."""
    metadata = job.metadata
    named = {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
    return _allowed(named | _changes(job), rights)


def requested_gpus(job: ElasticJob) -> int:
    """Return the GPUs that the job's members request; 0 while it has none."""
    if job.status.phase in (*ENDED, "Suspended"):
        return 0
    return sum(_gpus_of_role(job, role) for role in job.spec.replica_specs)


def _gpus_of_role(job: ElasticJob, role: str) -> int:
    spec = job.spec.replica_specs[role]
    status = job.status.replica_statuses.get(role)
    size = spec.replicas if status is None else status.desired
    if size is None:
        size = max(spec.min_replicas, 1)
    containers: list[Json] = (spec.template.get("spec") or {}).get("containers") or []
    total = 0
    for position, container in enumerate(containers):
        limits = (container.get("resources") or {}).get("limits") or {}
        if position or status is None:
            total += size * _gpus_in(limits)
            continue
        # A plan sets the resources of the first container, of all members or of some.
        usual = limits | dict(status.resources)
        single = list(status.resources_by_index.values())[:size]
        total += (size - len(single)) * _gpus_in(usual)
        total += sum(_gpus_in(usual | dict(each)) for each in single)
    return total


def _gpus_in(limits: Mapping[str, Any]) -> int:
    try:
        return sum(int(parse_quantity(limits.get(gpu) or 0)) for gpu in VISIBLE_DEVICES)
    except ValueError:
        return 0  # no pod can be made of it, which the job's phase shows


def _place(job: ShownJob, now: float) -> tuple[int, str, str]:
    """Return the place of a job among others: first those that need a look, last the ended."""
    lately = job.failed_at is not None and (
        not job.failed_at or now - job.failed_at < _FRESH_SECONDS
    )
    return 0 if lately or job.needs_a_look else job.place, job.namespace, job.name


def _needs_a_look(job: ElasticJob) -> bool:
    status = job.status
    if status.phase in (*ENDED, "Suspended"):
        return False
    progress = status.progress or Progress()
    return bool(progress.stalled_since or progress.unfit) or status.phase == "Retrying"


def _row(job: ElasticJob) -> Json:
    status = job.status
    progress = status.progress or Progress()
    ended = status.phase in ENDED
    stands = ended or status.phase == "Suspended"
    return {
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "phase": status.phase or "Pending",
        "why": _why(job)[:_LONGEST_TEXT],
        "step": progress.step,
        "totalSteps": progress.total_steps,
        "rate": None if stands else progress.samples_per_second,
        "etaSeconds": None if stands else progress.eta_seconds,
        "workers": status.workers,
        "gpus": requested_gpus(job),
        "stalledSince": None if stands else time_or_none(progress.stalled_since),
        "created": time_or_none(job.metadata.creation_timestamp),
        "createdBy": job.created_by[:_LONGEST_TEXT],
        **_changes(job),
    }


def _why(job: ElasticJob) -> str:
    """Return what a reader should know of a job that does not just train."""
    status = job.status
    progress = status.progress or Progress()
    if status.phase in (*ENDED, *_NOT_YET, None):
        return status.message
    parts = (
        f"stragglers: {', '.join(progress.stragglers)}" if progress.stragglers else "",
        f"unfit: {', '.join(progress.unfit)}" if progress.unfit else "",
    )
    return "; ".join(filter(None, parts))


def _texts(plans: Sequence[ShownPlan]) -> list[str]:
    """Return a line for each plan that waits or is executed, the first ones only."""
    texts = [each.text for each in sorted(plans, key=lambda plan: plan.created)[:_MOST_PLANS]]
    if len(plans) > _MOST_PLANS:
        texts.append(f"{len(plans) - _MOST_PLANS} more")
    return texts


def _allowed(row: Json, rights: Rights) -> Json:
    allowed = [
        each for each in row["offers"] if (rights.scale if each == "scale" else rights.patch)
    ]
    return {**row, "offers": allowed}


def _changes(job: ElasticJob) -> Json:
    """Return which changes the job takes, and the bounds of a new size."""
    role = job.spec.autoscaling.role
    policy = job.spec.run_policy
    takes = job.status.phase not in ENDED and not policy.stop
    spec = job.spec.replica_specs.get(role)
    offered = []
    if takes:
        offered.append("resume" if policy.suspend else "suspend")
    if takes and spec is not None and not policy.suspend:
        offered.append("scale")
    if takes:
        offered.append("stop")
    status = job.status.replica_statuses.get(role)
    return {
        "offers": offered,
        "role": role,
        "size": None if status is None else status.desired,
        "least": None if spec is None else spec.min_replicas,
        "most": None if spec is None else spec.max_replicas,
    }
