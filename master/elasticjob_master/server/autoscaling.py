"""The message that describes the auto-scaler."""

from __future__ import annotations

import math

from elasticjob_api.v1 import job_pb2 as pb

from elasticjob_master.controller import Controller
from elasticjob_master.core.autoscale.belief import SizeBelief, outcome
from elasticjob_master.core.autoscale.objective import Objective, meaning_text, objective_text
from elasticjob_master.core.autoscale.scaling_memory import RolePeaks


def autoscaling_at(controller: Controller, now: float, *, wall: float) -> pb.Autoscaling:
    """Return what the auto-scaler knows and does; almost empty if the job has no role to scale."""
    control = controller.scaling
    scaling = control.job_scaling
    memory = control.autoscaler.memory
    if scaling is None:
        return pb.Autoscaling(decision_seconds=-1.0)
    activity = control.activity(controller, scaling, now)
    belief = control.belief(scaling)
    bounds = control.bounds(scaling)
    objective = control.autoscaler.objective(scaling)
    seconds = activity.decision_seconds
    present = memory.rates.by_size.get(scaling.desired)
    plans = memory.plans
    pauses = plans.reached_size is not None and plans.retry_at > wall
    resources = memory.resources
    return pb.Autoscaling(
        enabled=scaling.enabled,
        role=scaling.role,
        size=scaling.desired,
        minimum=bounds.minimum,
        maximum=bounds.maximum,
        limit=bounds.limit.removesuffix("; that").rstrip(","),
        waiting_for=activity.waiting_for,
        # Rounded, so that a watch does not send a message each second.
        window_part=round(activity.window_part, 2),
        decision_seconds=-1.0 if seconds is None else math.ceil(seconds),
        reason=control.autoscaler.reason,
        decided=control.autoscaler.decided_at,
        settled_size=memory.search.settled_size or 0,
        had_size=(plans.reached_size or 0) if pauses else 0,
        retry_time=plans.retry_at if pauses else 0.0,
        resources_retry_time=resources.retry_at if resources.retry_at > wall else 0.0,
        rescale_seconds=memory.rates.rescale_seconds if memory.rates.rescale_costs else 0.0,
        node_members=memory.rates.node.members if memory.rates.node.is_full else 0,
        best_from=belief.best[0] if belief.best else 0,
        best_to=belief.best[1] if belief.best else 0,
        sizes=[_size(each, objective) for each in belief.sizes],
        roles=[
            _role(role, resources.peaks.get(role, RolePeaks()), outcome(memory, role))
            for role in sorted(scaling.roles)
        ],
        objective=objective_text(objective, present.mean if present else 0.0, scaling.desired),
        curve=[
            pb.ExpectedRate(
                size=each.size, expected=each.rate, expected_from=each.low, expected_to=each.high
            )
            for each in belief.curve
        ],
    )


def _size(source: SizeBelief, objective: Objective) -> pb.SizeBelief:
    measured = source.measured
    expected = source.expected
    message = pb.SizeBelief(size=source.size)
    if measured is not None:
        message.samples_per_second = measured.mean
        message.windows = measured.weight
        message.measured = measured.at
        message.relative_error = source.error
    if expected is not None:
        message.expected = expected.rate
        message.expected_from = expected.low
        message.expected_to = expected.high
        message.too_small = expected.too_small
        message.too_large = expected.too_large
    message.means = meaning_text(
        objective, message.samples_per_second or message.expected, source.size
    )
    return message


def _role(role: str, peaks: RolePeaks, remark: str) -> pb.RoleUse:
    return pb.RoleUse(role=role, cpu_cores=peaks.cpu, memory_bytes=peaks.memory, remark=remark)
