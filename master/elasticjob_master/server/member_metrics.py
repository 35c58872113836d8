"""The metrics of single members: of a bounded number, as a job may have thousands of them.

The labels are role and index, so that a member's series continue when its pod is replaced.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.members import Member

MAX_MEMBERS = 200
"""The number of members with series of their own: those with the lowest indices of each role."""
_METRICS = {
    "elasticjob_member_step_seconds": "Recent seconds for a step.",
    "elasticjob_member_cpu_cores": "CPU cores in use.",
    "elasticjob_member_memory_bytes": "Memory in use.",
    "elasticjob_member_gpu_utilization_ratio": "Mean use of its GPUs, from 0 to 1.",
    "elasticjob_member_gpu_memory_bytes": "Memory of its GPUs in use.",
    "elasticjob_member_loss": "The metric `loss` that it reported last.",
}


def member_metrics(controller: Controller) -> Iterator[Metric]:
    """Yield the metrics of the first members, and how many members have none."""
    members = heapq.nsmallest(
        MAX_MEMBERS,
        controller.members,
        key=lambda member: (member.identity.index, member.identity.role),
    )
    families = {
        name: GaugeMetricFamily(name, text, labels=["role", "index"])
        for name, text in _METRICS.items()
    }
    now = controller.now()
    for member in members:
        labels = [member.identity.role, str(member.identity.index)]
        loss = controller.progress.loss(member.uid)
        for name, value in _values(member, loss, now).items():
            if value is not None:
                families[name].add_metric(labels, value)
    yield from families.values()
    yield GaugeMetricFamily(
        "elasticjob_members_without_metrics",
        "Members without series of their own.",
        value=len(controller.members) - len(members),
    )


def _values(member: Member, loss: float | None, now: float) -> dict[str, float | None]:
    """Return a member's values; None where there is none."""
    usage = member.usage
    times = member.step_times
    # A GPU in use holds memory; without one, a series of zeros would look like an idle GPU.
    has_gpu = usage.gpu_memory_bytes > 0
    return {
        "elasticjob_member_step_seconds": times.step_seconds if times.is_known(now) else None,
        "elasticjob_member_cpu_cores": usage.cpu_cores,
        "elasticjob_member_memory_bytes": usage.memory_bytes,
        "elasticjob_member_gpu_utilization_ratio": usage.gpu_percent / 100 if has_gpu else None,
        "elasticjob_member_gpu_memory_bytes": usage.gpu_memory_bytes if has_gpu else None,
        "elasticjob_member_loss": loss,
    }
