"""Chooses the pod that runs a plan's script, and waits for the end of the script.

The pod is stored in the plan's status before the master orders the script, and no other pod is ever
chosen. An agent runs a script once. So it runs at most once, whichever process is killed. If its
pod ends before the result is known, the plan fails.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_sizes import launcher_of
from elasticjob_api.scale_requests import ScaleInSpec, ScaleOutSpec
from elasticjob_api.scaleplan import ScalePlan, ScalePlanSpec, ScalePlanStatus
from elasticjob_api.scripts import ScriptRun
from elasticjob_api.times import format_time, parse_time
from msgspec.structs import replace

from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import PlanRefused

RESULT_SECONDS = 30
"""Seconds in which the result may arrive after the script's time, when the agent kills it."""

_WORDS = 400
"""Characters of the script's output in the plan's message; `status.script` has more."""


def check(job: ElasticJob, spec: ScaleInSpec | ScaleOutSpec | ScalePlanSpec) -> None:
    """Refuse a script that the job does not allow, or for which it has no launcher.

    Raises:
        PlanRefused: why, and what to do.
    """
    if not spec.script:
        return
    if not job.spec.run_policy.allow_scripts:
        raise PlanRefused(
            f"spec.script: ElasticJob {job.metadata.name!r} has runPolicy.allowScripts false; "
            "remove script, or set it to true: then users who may create requests run commands in "
            "its launcher"
        )
    if launcher_of(job) is None:
        raise PlanRefused(
            "spec.script: a script is run by the launcher's agent, and this job has no launcher: "
            "that is the role launcher of framework horovod, with an agent; remove script, or give "
            "the job one"
        )


def is_pending(plan: ScalePlan) -> bool:
    """Return whether the plan has a script that has not succeeded yet."""
    return bool(plan.spec.script) and (
        plan.status.script is None or plan.status.script.exit_code != 0
    )


def advance(observed: Observed, plan: ScalePlan, since: float, now: float) -> ScalePlanStatus:
    """Return the plan's status with the state of its script, which may have begun at `since`.

    An ended script has a `completion_time`, and an exit code if that is known.
    """
    run = plan.status.script
    status = plan.status
    progress = observed.job.status.progress
    end = progress.script if progress is not None else None
    if run is None:
        return _begin(observed, plan, since, now)
    if end is not None and end.plan == plan.metadata.uid:
        return _ended(status, run, now, end.message, exit_code=end.exit_code)
    if all(pod.training_ended for pod in observed.pods.named([run.pod or ""])):
        return _ended(
            status, run, now, f"pod {run.pod} has ended before the end of the script was known"
        )
    if seconds_left(status, plan.spec.timeout_seconds, since, now) <= 0:
        return _ended(status, run, now, "the launcher's agent has not reported its end in time")
    return status


def seconds_left(status: ScalePlanStatus, timeout: int, since: float, now: float) -> float:
    """Return how long the plan still waits for the script, which may have begun at `since`."""
    run = status.script
    begun = since if run is None else parse_time(run.start_time) + RESULT_SECONDS
    return begun + timeout - now


def failure(run: ScriptRun) -> str:
    """Return the message of a plan whose script has not succeeded."""
    text = "spec.script: failed"
    if run.exit_code is not None:
        text = f"spec.script: ended with exit code {run.exit_code} in {run.pod}"
    if len(run.message) > _WORDS:
        return f"{text}: … {run.message[-_WORDS:]}"
    return f"{text}: {run.message}" if run.message else text


def _begin(observed: Observed, plan: ScalePlan, since: float, now: float) -> ScalePlanStatus:
    role = launcher_of(observed.job)
    pods = observed.pods_of(role or "")
    ready = sorted((pod.index, pod.name) for pod in pods if pod.ready)
    ready_pod = ready[0][1] if ready else None
    if ready_pod is not None:
        run = ScriptRun(pod=ready_pod, start_time=format_time(now))
        return replace(
            plan.status, script=run, waiting_for=f"the script, which pod {ready_pod} runs"
        )
    if seconds_left(plan.status, plan.spec.timeout_seconds, since, now) > 0:
        return replace(plan.status, waiting_for="the launcher to be ready, which runs the script")
    return _ended(
        plan.status,
        ScriptRun(start_time=format_time(now)),
        now,
        "no launcher was ready in time to run it",
    )


def _ended(
    status: ScalePlanStatus,
    run: ScriptRun,
    now: float,
    message: str,
    *,
    exit_code: int | None = None,
) -> ScalePlanStatus:
    ended = replace(run, exit_code=exit_code, message=message, completion_time=format_time(now))
    return replace(status, script=ended)
