"""Executes one ScalePlan that has begun.

First the size changes: members to remove drain while new members start. Then the members that the
plan names are replaced, and resources change: in place, or by replacing one member after the other.
If a step does not succeed in time, the plan ends early: it begins nothing more, and ends with what
it has reached.

Everything is computed from the plan's status, so a new operator continues where the last one
stopped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.indices import IndexSet
from elasticjob_api.pod_identity import MemberKey
from elasticjob_api.scaleplan import PlanPhase, ScalePlan, ScalePlanStatus
from elasticjob_api.times import format_time, parse_time
from msgspec.structs import replace

from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Action
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.scaling import (
    completion_status,
    drain,
    migration,
    plan_phases,
    progress_messages,
    resize,
    scripts,
)
from elasticjob_operator.core.scaling.plan_membership import (
    PlanMembership,
    membership_of,
    with_membership,
)
from elasticjob_operator.core.scaling.scaling_result import ScalingResult
from elasticjob_operator.core.scaling.time_limit import time_left

_RESIZE_CHECK_SECONDS = 1.0
"""Seconds between two checks of whether the kubelets have done the resizes."""
_RESIZE_BATCH_SECONDS = 10
"""A resize that is requested later than this after the first one restarts the time for resizes."""


def advance(
    observed: Observed, status: ElasticJobStatus, plan: ScalePlan, now: float
) -> ScalingResult:
    """Advance a plan that has begun; return the job's members while it runs, and what to do now."""
    members = membership_of(status, plan)
    failed = migration.failed_replacements(observed, plan)
    result = ScalingResult(
        status=with_membership(status, plan, members),
        staying={
            role: indices - failed.get(role, IndexSet())
            for role, indices in members.staying.items()
        },
        counted=members.counted,
        avoided_nodes=migration.avoided_nodes(observed, plan),
    )
    if not completion_status.ends_early(plan.status):
        result = dataclasses.replace(result, overrides=resize.resources_by_role(plan))
    execution = _Execution(observed, plan, members, result, now)
    if plan.status.execution_time is not None:
        return execution.execute()
    if plan.spec.remove_pods and scripts.is_pending(plan):
        return execution.run_script_before()
    return execution.drain()


@dataclass(frozen=True)
class _Execution:
    """The input of one step of a plan; each method returns the result of the step that it takes."""

    observed: Observed
    plan: ScalePlan
    members: PlanMembership
    result: ScalingResult
    now: float

    def run_script_before(self) -> ScalingResult:
        """Wait for the script while all members train.

        After it the leaving members begin to drain, or the plan fails.
        """
        before = self.members.before
        result = dataclasses.replace(
            self.result,
            counted={role: each | before[role] for role, each in self.result.counted.items()},
            staying={role: each | before[role] for role, each in self.result.staying.items()},
        )
        execution = dataclasses.replace(self, result=result)
        since = parse_time(self.plan.status.start_time or format_time(self.now))
        status = scripts.advance(self.observed, self.plan, since, self.now)
        run = status.script
        if run is None or run.completion_time is None:
            return execution._wait_for_script(status, since)
        if run.exit_code == 0:
            status = plan_phases.begin_to_drain(
                self.observed, self.plan, status, before, self.members.targets, self.now
            )
            return execution._write(status)
        status = replace(status, targets=plan_phases.formatted(before))
        return execution._act(
            plan_phases.end(self.plan, "Failed", scripts.failure(run), self.now, status=status)
        )

    def drain(self) -> ScalingResult:
        """Wait until training has ended in every draining pod, or the deadline has passed.

        The master stops the agents.
        """
        observed = self.observed
        status = self.plan.status
        waiting = drain.not_drained(observed, set(status.draining_pods))
        seconds_left = self._drain_seconds_left()
        if waiting and seconds_left > 0:
            status = drain.with_draining_if_worth_a_write(status, waiting)
            text = progress_messages.awaited_drains(observed, self.plan, waiting)
            result = self._write(replace(status, waiting_for=text), requeue_after=seconds_left)
            counted = drain.with_members_of(observed, result.counted, set(waiting))
            return dataclasses.replace(result, counted=counted)
        return self._write(
            replace(
                drain.with_draining(status, (), forced=waiting),
                phase="Executing",
                waiting_for=progress_messages.awaited_members(
                    observed, progress_messages.not_ready(observed, self.members.added)
                ),
                execution_time=format_time(self.now),
            )
        )

    def execute(self) -> ScalingResult:
        """Take the next step.

        The steps are: resize in place, wait for new members, run the script, replace members, wait
        for removed pods, end the plan.
        """
        observed = self.observed
        plan = self.plan
        resizes = resize.progress_of(observed, plan, self.members, self.now)
        if completion_status.ends_early(plan.status):
            if migration.in_progress(plan.status):
                return self._migrate()
            return self._finish_partially(resizes)
        if resizes.to_request:
            return self._request_resizes(resizes)
        if not_ready := progress_messages.not_ready(observed, self.members.added):
            return self._wait_for_new_members(not_ready)
        if plan.spec.create_pods and scripts.is_pending(plan):
            return self._run_script_after()
        if migration.in_progress(plan.status):
            return self._migrate()
        if remaining := self._removed_pods_left():
            problem = "removed pods have not gone"
            why = progress_messages.not_reached_message(remaining, len(remaining), problem)
            return self._wait_or_time_out(progress_messages.awaited_removals(remaining), why)
        if resizes.pending:
            names = sorted(pod.name for pod in resizes.pending)
            text = progress_messages.awaited_resizes(names, resizes.problems)
            status = replace(plan.status, waiting_for=text)
            return self._write(status, requeue_after=_RESIZE_CHECK_SECONDS)
        if resizes.impossible:
            return self._replace_next(resizes)
        message = completion_status.success_message(plan, self.members, self.now)
        return self._finish("Succeeded", message)

    def _wait_for_new_members(self, not_ready: Sequence[MemberKey]) -> ScalingResult:
        total = sum(map(len, self.members.added.values()))
        why = progress_messages.not_reached_message(
            [f"{role} {index}" for role, index in not_ready],
            total,
            "new members are not ready",
            (progress_messages.why_not_ready(self.observed, *member) for member in not_ready),
        )
        text = progress_messages.awaited_members(self.observed, not_ready)
        return self._wait_or_time_out(text, why, not_ready)

    def _run_script_after(self) -> ScalingResult:
        """Wait for the script when the new members are ready; if it fails, they are removed."""
        since = parse_time(self.plan.status.execution_time or format_time(self.now))
        status = scripts.advance(self.observed, self.plan, since, self.now)
        run = status.script
        if run is None or run.completion_time is None:
            return self._wait_for_script(status, since)
        if run.exit_code != 0:
            status = replace(
                status,
                targets=plan_phases.formatted(self.members.before),
                message=f"rolled back: {scripts.failure(run)}",
                waiting_for="",
            )
        return self._write(status)

    def _wait_for_script(self, status: ScalePlanStatus, since: float) -> ScalingResult:
        timeout = self.plan.spec.timeout_seconds
        left = scripts.seconds_left(status, timeout, since, self.now)
        return self._write(status, requeue_after=left)

    def _request_resizes(self, resizes: resize.ResizeProgress) -> ScalingResult:
        """Request resizes in place, after the plan's status stores which pods and when."""
        status = self.plan.status
        requested = [pod.name for pod in resizes.to_request]
        refused = self.observed.refused_resizes
        anew = all(pod.metadata.uid in refused for pod in resizes.to_request)
        requested_at = status.resize_time
        late = requested_at and self.now - parse_time(requested_at) > _RESIZE_BATCH_SECONDS
        if requested_at is None or (late and not anew):
            requested_at = format_time(self.now)
        status = replace(
            status,
            waiting_for=progress_messages.awaited_resizes(
                sorted([*(pod.name for pod in resizes.pending), *requested]), resizes.problems
            ),
            resized_pods=drain.limited(list(dict.fromkeys([*status.resized_pods, *requested]))),
            resize_time=requested_at,
        )
        job = self.observed.job
        wanted = (
            (pod, resize.resources_of(job.status, self.plan, pod.role, pod.index))
            for pod in resizes.to_request
        )
        requests = [
            dataclasses.replace(resize.resize_request(job, pod, resources), at=self.now)
            for pod, resources in wanted
        ]
        return self._act([*patches.scaling_status(self.plan, status), *requests])

    def _migrate(self) -> ScalingResult:
        """Advance every migration by one phase if it can."""
        status, due = migration.advance(self.observed, self.plan, self.now)
        phase: PlanPhase = "Draining" if status.draining_pods else "Executing"
        text = progress_messages.awaited_replacements(self.observed, self.plan, status)
        return self._write(replace(status, phase=phase, waiting_for=text), requeue_after=due)

    def _replace_next(self, resizes: resize.ResizeProgress) -> ScalingResult:
        """Begin to replace the first of the members that cannot be resized in place."""
        pod, why = min(resizes.impossible, key=lambda item: (item[0].role, item[0].index))
        member = (pod.role, pod.index)
        return self._write(
            migration.begin_next(self.observed, self.plan, self.members, member, why, self.now)
        )

    def _wait_or_time_out(
        self, text: str, why: str, not_ready: Sequence[MemberKey] = ()
    ) -> ScalingResult:
        """Wait, with `text` in the plan's status. If its time is over, end the plan early.

        `why` is the reason in the message of a plan that ends early.
        """
        status = self.plan.status
        seconds_left, limit = time_left(self.observed, self.plan, not_ready, self.now)
        if seconds_left > 0:
            return self._write(replace(status, waiting_for=text), requeue_after=seconds_left)
        message = f"after {limit}: {why}"
        targets = self.members.targets
        if self.plan.spec.on_timeout == "Rollback" and not_ready:
            message = f"rolled back {message}"
            targets = completion_status.rollback_targets(self.members, not_ready)
        formatted = plan_phases.formatted(targets)
        return self._write(replace(status, targets=formatted, message=message, waiting_for=""))

    def _finish_partially(self, resizes: resize.ResizeProgress) -> ScalingResult:
        """Undo the resizes that were not done, store what was reached, and end the plan."""
        impossible = [pod for pod, _ in resizes.impossible]
        not_resized = [*resizes.to_request, *resizes.pending, *impossible]
        if undo := resize.undo_requests(self.observed, self.plan, not_resized):
            return self._act(undo)
        phase, message = completion_status.partial_result(
            self.observed, self.plan, self.members, resizes, not_resized
        )
        return self._finish(phase, message, not_resized=not_resized)

    def _finish(
        self, phase: PlanPhase, message: str, *, not_resized: Sequence[Pod] = ()
    ) -> ScalingResult:
        """Store sizes and resources first, then end the plan.

        After a crash in between, repeating both has no effect.
        """
        observed = self.observed
        plan = self.plan
        if writes := completion_status.write_back_replicas(observed, plan, self.members):
            return self._act(writes)
        status = self.result.status
        if phase == "Succeeded":
            status = completion_status.with_role_resources(status, plan, observed.pods)
        else:
            reached = resize.resources_reached(observed, plan, self.members, not_resized)
            status = completion_status.with_resources_by_index(status, reached)
        pods = observed.pods.without(not_resized)
        ended = self._act(plan_phases.end(plan, phase, message, self.now, pods=pods))
        return dataclasses.replace(ended, status=status)

    def _drain_seconds_left(self) -> float:
        """Return how long the draining pods may still train; they began when the script ended."""
        status = self.plan.status
        roles = {pod.role for pod in self.observed.pods.named(status.draining_pods)}
        since = status.start_time or format_time(self.now)
        if status.script is not None and status.script.completion_time is not None:
            since = status.script.completion_time
        allowed = drain.drain_seconds(self.observed, self.plan, roles)
        return parse_time(since) + allowed - self.now

    def _removed_pods_left(self) -> list[str]:
        """Return the pods of members that this plan, not an earlier one, removed or replaced."""
        had = dict(self.members.before)
        for move in self.plan.status.migrations:
            if move.role in had:
                had[move.role] = had[move.role].with_index(move.index).with_index(move.replacement)
        left = {role: had[role] - indices for role, indices in self.members.indices.items()}
        return sorted(pod.name for pod in self.observed.pods.of_members(left))

    def _write(
        self, status: ScalePlanStatus, *, requeue_after: float | None = None
    ) -> ScalingResult:
        """Return the result with a write of the plan's status."""
        return self._act(patches.scaling_status(self.plan, status), requeue_after=requeue_after)

    def _act(
        self, actions: Sequence[Action], *, requeue_after: float | None = None
    ) -> ScalingResult:
        return dataclasses.replace(self.result, actions=tuple(actions), requeue_after=requeue_after)
