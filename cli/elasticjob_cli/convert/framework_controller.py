"""FrameworkController: Framework of frameworkcontroller.microsoft.com/v1. Pure.

Tasks there are pods that know nothing of each other, so a task role becomes a role without an
agent. Where tasks wait for each other's addresses (FrameworkBarrier), the role has an agent, and
the agents' world has the addresses: framework_barrier.py.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS
from elasticjob_api.meta import Json

from elasticjob_cli.convert import framework_barrier, framework_names, jobs, templates
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, place
from elasticjob_cli.convert.naming import role_name
from elasticjob_cli.convert.report import Place, Report

API_VERSION = "frameworkcontroller.microsoft.com/v1"
_ALWAYS = -2
_ANY_FAILURE = -1


def framework(document: Fields, report: Report) -> Json | None:
    """Convert a Framework."""
    draft = Draft(jobs.metadata(document, of_job=True), "custom")
    spec = document.map("spec")
    if description := spec.text("description"):
        draft.metadata.setdefault("annotations", {}).setdefault("description", description)
    policy: Json = {"backoffLimit": MAX_INT32}
    message = "the bound for all members together, which there is none of there"
    report.differs("spec.retryPolicy", message, ("spec", "runPolicy", "backoffLimit"))
    _execution(spec, policy, report)
    _whole_job_retry(spec, policy, report)
    draft.spec["runPolicy"] = policy
    given = {}
    for group in spec.list_of_maps("taskRoles"):
        name = group.text("name", required=True)
        role = role_name(name) if name else "unknown"
        if role in draft.roles:
            report.refused(
                group.where("name"), f"{name} is there twice; give each task role a name of its own"
            )
            continue
        if role != name:
            report.differs(group.where("name"), f"{name} is {role} here", place(role))
        given[role] = name
        draft.sources[role] = group.path
        draft.roles[role] = _role(group, role, report)
        group.done()
    job = document.map("metadata")
    framework_names.rewrite(draft, job.text("name") or job.text("generateName"), given, report)
    if framework_barrier.rewrite(draft, given, report):
        policy["startPolicy"] = "AllReady"
    for role in (role for role, written in draft.roles.items() if "agent" in written):
        message = "minReplicas: there is no lower bound there"
        report.invented(draft.sources[role], message, place(role, "minReplicas"))
    spec.done()
    return jobs.finish(draft, report)


def _execution(spec: Fields, policy: Json, report: Report) -> None:
    kind = spec.text("executionType", "Start", choices=("Create", "Start", "Stop"))
    if kind == "Create":
        policy["suspend"] = True
    elif kind == "Stop":
        policy["stop"] = True


def _whole_job_retry(spec: Fields, policy: Json, report: Report) -> None:
    read = spec.map("retryPolicy")
    fancy = read.boolean("fancyRetryPolicy", default=False)
    count = read.integer("maxRetryCount", _ALWAYS, MAX_INT32) or 0
    read.done()
    if not fancy and not count:
        return
    kind = "Always" if count == _ALWAYS else "OnTransient" if fancy else "OnFailure"
    retry: Json = {"policy": kind} | ({"limit": count} if count >= 0 else {})
    here = ("spec", "runPolicy", "retry")
    if fancy:
        retry |= {"minDelaySeconds": 60, "maxDelaySeconds": 900}
        message = "here a failure that passes replaces its member and ends no attempt, and every retry counts; "
        message += "each waits as long as there after a conflict"
        report.differs(read.where("fancyRetryPolicy"), message, here)
    else:
        message = "a retry waits for 10 s, and data sets of the library go on where they were"
        report.differs(read.where("maxRetryCount"), message, here)
    policy["retry"] = retry


def _role(group: Fields, role: str, report: Report) -> Json:
    task = group.map("task")
    at = place(role)
    count = jobs.replicas(group, "taskNumber", default=0)
    found: Json = {"replicas": count, "minReplicas": min(count, 1), "agent": "None"}
    _retries(task.map("retryPolicy"), found, at, report)
    found["completion"] = _completion(group.map("frameworkAttemptCompletionPolicy"), at, report)
    if "restartOnSuccess" in found:
        found["completion"].pop("minSucceeded", None)  # which is never reached
    if (seconds := task.integer("podGracefulDeletionTimeoutSec", 0, 31_536_000)) is not None:
        found["podForceDeleteSeconds"] = seconds
    found["template"] = templates.pod_template(task, "pod", (*at, "template"))
    task.done()
    return found


def _completion(policy: Fields, at: Place, report: Report) -> Json:
    """Return when the role ends the job: -1 is never there."""
    failed = policy.integer("minFailedTaskCount", -1, MAX_REPLICAS)
    succeeded = policy.integer("minSucceededTaskCount", -1, MAX_REPLICAS)
    policy.done()
    here = (*at, "completion")
    if failed == -1:
        message = "-1: failed tasks do not end the job, but if none of a role succeeds it has failed; there it succeeds"
        report.differs(policy.where("minFailedTaskCount"), message, here)
    found: Json = {"minFailed": MAX_REPLICAS if failed == -1 else failed or 1}
    if succeeded is not None and succeeded > 0:
        found["minSucceeded"] = succeeded
    return found


def _retries(policy: Fields, found: Json, at: Place, report: Report) -> None:
    fancy = policy.boolean("fancyRetryPolicy", default=False)
    count = policy.integer("maxRetryCount", _ALWAYS, MAX_INT32) or 0
    policy.done()
    where = policy.where("maxRetryCount")
    here = (*at, "restartLimit")
    if count == _ALWAYS:
        found["restartOnSuccess"] = True
    if count < 0:
        found["restartLimit"] = jobs.MAX_RESTARTS
        if not fancy:
            found["restartRules"] = [{"action": "Ignore"}]
        else:
            message = f"{count}: without a bound there, {jobs.MAX_RESTARTS} counted restarts here"
            report.differs(where, message, here)
    else:
        found["restartLimit"] = min(count, jobs.MAX_RESTARTS)
        if not fancy:
            found["restartRules"] = [{"action": "Restart"}]
    if fancy:
        # A conflict with others over something that passes: they shall not all come back at once.
        found["restartRules"] = [
            {"action": "Ignore", "exitCodes": [201], "minDelaySeconds": 60, "maxDelaySeconds": 900}
        ]
        message = "fancyRetryPolicy is the table of docs/failures.md: 200 and 201 uncounted, 210 for good. "
        report.differs(policy.where("fancyRetryPolicy"), message + jobs.OUT_OF_MEMORY, here)
    else:
        counted = "is tried again, uncounted" if count < 0 else "counts, also of evicted pods"
        message = f"every failure {counted}; a pod that somebody has deleted is replaced uncounted"
        report.differs(policy.where("fancyRetryPolicy"), message, (*at, "restartRules"))
