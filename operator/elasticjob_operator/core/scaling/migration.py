"""Migrates members: each is replaced by a new one, which is ready before the old one drains.

A replacement has another index, so no two pods ever have the same rank. Meanwhile the job has one
more pod for each member that is being replaced. If a replacement fails or is not ready in time, it
is removed and the old member stays. Such a failure counts against no limit of the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from elasticjob_api.indices import IndexSet, parse_indices
from elasticjob_api.pod_identity import MemberKey
from elasticjob_api.scaleplan import Migration, MigrationPhase, ScalePlan, ScalePlanStatus
from elasticjob_api.times import format_time, parse_time
from msgspec.structs import replace

from elasticjob_operator.core.manifests.placement import AvoidedNodes
from elasticjob_operator.core.members.failure_policy import classify
from elasticjob_operator.core.model.actions import shortest_wait
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import Indices
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.scaling import disruption, drain, progress_messages, resize
from elasticjob_operator.core.scaling.plan_membership import PlanMembership

_SUCCEEDED = "the member has finished its work"
_MAX_REASON_LENGTH = 256
"""Characters of the reason for one member.

After `MAX_NAMES_LISTED` members reasons are left out.
"""


def in_progress(status: ScalePlanStatus) -> bool:
    """Return whether a member is being replaced, or waits for that."""
    return any(move.phase in ("Pending", "Starting", "Draining") for move in status.migrations)


def failed(status: ScalePlanStatus) -> list[Migration]:
    """Return the members that could not be replaced."""
    return [
        move
        for move in status.migrations
        if move.phase == "Undone" and not move.message.endswith(_SUCCEEDED)
    ]


def done(status: ScalePlanStatus) -> list[Migration]:
    """Return the members that have been replaced."""
    return [move for move in status.migrations if move.phase == "Done"]


def failed_replacements(observed: Observed, plan: ScalePlan) -> Indices:
    """Return the replacements whose training has failed before the old member was drained.

    After an uncounted end, such as an eviction, a replacement gets another pod.
    """
    starting = {
        (move.role, move.replacement) for move in plan.status.migrations if move.phase == "Starting"
    }
    if not starting:
        return {}
    found: Indices = defaultdict(IndexSet)
    for role, index in starting:
        if _failure(observed, observed.pods_of(role).at(index)):
            found[role] = found[role].with_index(index)
    return found


def avoided_nodes(observed: Observed, plan: ScalePlan) -> dict[MemberKey, AvoidedNodes]:
    """Return the nodes that each replacement avoids, by its role and index.

    It prefers other nodes than that of the old member's pod. If the plan is for a condition of
    nodes, it never runs on a node with such a condition.
    """
    named = {
        (entry.name, entry.role, entry.index)
        for entry in plan.spec.migrate_pods
        if entry.avoid_node
    }
    if not named:
        return {}
    required = disruption.nodes_to_avoid(observed, plan)
    starting = [move for move in plan.status.migrations if move.phase == "Starting"]
    nodes = {
        (pod.role, pod.index): (pod.spec.node_name,)
        for move in starting
        for pod in observed.pods_of(move.role).at(move.index)
        if pod.spec.node_name
        and not named.isdisjoint(((pod.name, None, None), (None, pod.role, pod.index)))
    }
    return {
        (move.role, move.replacement): AvoidedNodes(preferred, required)
        for move in starting
        if (preferred := nodes.get((move.role, move.index), ())) or required
    }


def advance(
    observed: Observed, plan: ScalePlan, now: float
) -> tuple[ScalePlanStatus, float | None]:
    """Return the plan's status with every migration advanced, and the seconds until the next."""
    status = plan.status
    wait = None
    draining = set(status.draining_pods)
    removed = set(status.removed_pods)
    forced = set[str]()
    moves: list[Migration] = []
    for move in status.migrations:
        old = observed.pods_of(move.role).at(move.index)
        moved, left = _advance_one(observed, plan, move, draining, now)
        if moved.phase == "Draining" != move.phase:
            draining.update(drain.pods_to_drain(observed.job, old))
            removed.update(pod.name for pod in old if pod.name not in draining)
        elif moved.phase == "Done" != move.phase:
            forced.update(
                pod.name for pod in old if pod.name in draining and not pod.training_ended
            )
        moves.append(moved)
        wait = shortest_wait(wait, left)
    waiting = set(drain.not_drained(observed, draining)) - forced
    status = replace(
        status,
        migrations=moves,
        draining_pods=sorted(draining),
        removed_pods=drain.limited(removed),
    )
    return drain.with_draining(status, waiting, forced=forced), wait


def begin_next(
    observed: Observed,
    plan: ScalePlan,
    members: PlanMembership,
    member: MemberKey,
    why: str,
    now: float,
) -> ScalePlanStatus:
    """Return the plan's status with one more migration; `why` it is not resized in place."""
    role, index = member
    used = members.indices[role] | observed.pods_of(role).present
    replacement = next(used.free())
    text = why[:_MAX_REASON_LENGTH] if len(plan.status.migrations) < drain.MAX_NAMES_LISTED else ""
    move = Migration(
        role=role,
        index=index,
        replacement=replacement,
        phase="Starting",
        since=format_time(now),
        message=text,
    )
    given = plan.status.resources_by_index
    own = observed.job.status.replica_statuses[role].resources_by_index.get(str(index), {})
    by_plan = resize.resources_of(observed.job.status, plan, role, index)
    if kept := {name: value for name, value in own.items() if by_plan.get(name, value) == value}:
        given = {**given, role: {**given.get(role, {}), str(replacement): kept}}
    return replace(
        plan.status, migrations=[*plan.status.migrations, move], resources_by_index=given
    )


def _advance_one(
    observed: Observed,
    plan: ScalePlan,
    move: Migration,
    draining: Collection[str],
    now: float,
) -> tuple[Migration, float | None]:
    """Return a migration, in its next phase if possible, and the seconds until its timeout."""
    if move.phase == "Pending":
        if plan.status.message:  # the plan ends early
            return _with_phase(move, "Undone", now, "it was not begun"), None
        return _with_phase(move, "Starting", now), None
    if move.phase == "Starting":
        return _advance_starting(observed, plan, move, now)
    if move.phase == "Draining":
        waiting = any(
            pod.name in draining and not pod.training_ended
            for pod in observed.pods_of(move.role).at(move.index)
        )
        left = _seconds_left(move, drain.drain_seconds(observed, plan, [move.role]), now)
        return (move, left) if waiting and left > 0 else (_with_phase(move, "Done", now), None)
    return move, None


def _advance_starting(
    observed: Observed, plan: ScalePlan, move: Migration, now: float
) -> tuple[Migration, float | None]:
    """Drain the old member if the replacement is ready; else wait, or undo the migration."""
    succeeded = parse_indices(observed.job.status.replica_statuses[move.role].succeeded_indices)
    if move.index in succeeded:
        return _with_phase(move, "Undone", now, _SUCCEEDED), None
    pods = observed.pods_of(move.role)
    if move.replacement in succeeded or move.replacement in pods.ready:
        return _with_phase(move, "Draining", now), None
    if failure := _failure(observed, pods.at(move.replacement)):
        return _with_phase(
            move, "Undone", now, f"its replacement failed: {failure}"[:_MAX_REASON_LENGTH]
        ), None
    left = _seconds_left(move, plan.spec.timeout_seconds, now)
    if left > 0:
        return move, left
    why = progress_messages.why_not_ready(observed, move.role, move.replacement)[
        :_MAX_REASON_LENGTH
    ]
    message = (
        f"its replacement is not ready after timeoutSeconds {plan.spec.timeout_seconds}: {why}"
    )
    return _with_phase(move, "Undone", now, message), None


def _failure(observed: Observed, pods: Collection[Pod]) -> str:
    """Return why the newest of a member's pods has failed; empty if it has no counted failure."""
    if not pods:
        return ""
    pod = max(pods, key=lambda pod: pod.incarnation)
    if not pod.training_ended or pod.training_succeeded:
        return ""
    failure = classify(pod, observed.job.spec.replica_specs[pod.role].restart_rules)
    return "" if failure.action == "Ignore" else failure.reason


def _with_phase(move: Migration, phase: MigrationPhase, now: float, message: str = "") -> Migration:
    text = "; ".join(filter(None, (move.message, message)))
    return replace(move, phase=phase, since=format_time(now), message=text)


def _seconds_left(move: Migration, seconds: int, now: float) -> float:
    return parse_time(move.since or format_time(now)) + seconds - now
