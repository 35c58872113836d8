"""FrameworkController: Framework of frameworkcontroller.microsoft.com/v1. Pure.

A task there is a pod that does not know the other tasks, so a task role becomes a role without an
agent. If tasks wait for each other's addresses (`framework_names.py`), the role has an agent.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import MAX_INT32, MAX_REPLICAS
from elasticjob_api.limits import MAX_RESTARTS
from elasticjob_api.meta import Json
from elasticjob_api.yaml_documents import Place

from elasticjob_cli.convert import (
    common_fields,
    framework_names,
    jobs,
    templates,
)
from elasticjob_cli.convert.common_fields import role_name
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, place

API_VERSION = "frameworkcontroller.microsoft.com/v1"
_ALWAYS = -2


def framework(document: Fields) -> Json | None:
    """Convert a Framework."""
    draft = jobs.begun(document, "custom")
    spec = document.map("spec")
    if description := spec.text("description"):
        draft.metadata.setdefault("annotations", {}).setdefault("description", description)
    policy: Json = {"backoffLimit": MAX_INT32}
    message = "a bound for all members together; there is none there"
    document.differs("spec.retryPolicy", message, ("spec", "runPolicy", "backoffLimit"))
    kind = spec.text("executionType", "Start", choices=("Create", "Start", "Stop"))
    if kind == "Create":
        policy["suspend"] = True
    elif kind == "Stop":
        policy["stop"] = True
    _whole_job_retry(spec, policy)
    draft.spec["runPolicy"] = policy
    task_roles = _task_roles(spec, draft)
    job = document.map("metadata")
    name = job.text("name") or job.text("generateName")
    framework_names.rewrite(draft, name, task_roles)
    if framework_names.remove_barrier(draft, task_roles):
        policy["startPolicy"] = "AllReady"
    for role, written in draft.roles.items():
        if "agent" in written:
            draft.invented(role, "minReplicas: there is no lower bound there", "minReplicas")
    return jobs.finish(draft)


def _task_roles(spec: Fields, draft: Draft) -> dict[str, str]:
    """Add the roles to the draft; return the names of the task roles, by role."""
    task_roles: dict[str, str] = {}
    for group in spec.list_of_maps("taskRoles"):
        name = group.text("name", required=True)
        role = role_name(name) if name else "unknown"
        if role in draft.roles:
            group.refused("name", f"{name} is given twice; give each task role its own name")
            continue
        if role != name:
            group.differs("name", f"{name} is {role} here", place(role))
        task_roles[role] = name
        draft.add(role, _role(group, role), group)
        group.done()
    return task_roles


def _whole_job_retry(spec: Fields, policy: Json) -> None:
    read = spec.map("retryPolicy")
    fancy = read.boolean("fancyRetryPolicy", default=False)
    count = read.integer("maxRetryCount", _ALWAYS, MAX_INT32) or 0
    if not fancy and not count:
        return
    retry: Json = {"policy": "OnFailure"}
    if fancy:
        retry["policy"] = "OnTransient"
    elif count == _ALWAYS:
        retry["policy"] = "Always"
    if count >= 0:
        retry["limit"] = count
    at = ("spec", "runPolicy", "retry")
    if fancy:
        retry |= {"minDelaySeconds": 60, "maxDelaySeconds": 900}
        message = (
            "here a transient failure replaces its member and ends no attempt, and every retry "
            "counts; each waits as long as there after a conflict"
        )
        read.differs("fancyRetryPolicy", message, at)
        if count == _ALWAYS:
            message = (
                "-2 with fancyRetryPolicy repeats all attempts there but those that fail for good; "
                "here one that succeeds ends the job"
            )
            read.lost("maxRetryCount", message, at)
    else:
        message = "a retry waits for 10 s, and data sets of the library continue where they were"
        read.differs("maxRetryCount", message, at)
    policy["retry"] = retry


def _role(group: Fields, role: str) -> Json:
    task = group.map("task")
    at = place(role)
    count = common_fields.replicas(group, "taskNumber", default=0)
    found: Json = {"replicas": count, "minReplicas": min(count, 1), "agent": "None"}
    _retries(task.map("retryPolicy"), found, at)
    found["completion"] = _completion(group.map("frameworkAttemptCompletionPolicy"), at)
    if "restartOnSuccess" in found:
        found["completion"].pop("minSucceeded", None)  # a task that restarts never succeeds
    if (seconds := task.integer("podGracefulDeletionTimeoutSec", 0, 31_536_000)) is not None:
        found["podForceDeleteSeconds"] = seconds
    found["template"] = templates.pod_template(task, "pod", (*at, "template"))
    return found


def _completion(policy: Fields, at: Place) -> Json:
    """Return when the role ends the job; a count below 1 there means never."""
    failed = policy.integer("minFailedTaskCount", -1, MAX_REPLICAS) or 0
    succeeded = policy.integer("minSucceededTaskCount", -1, MAX_REPLICAS)
    found: Json = {"minFailed": failed}
    if failed < 1:
        found["minFailed"] = MAX_REPLICAS
        message = (
            f"{failed}: failed tasks do not end the job, but if no task of a role succeeds, it "
            "fails; there it succeeds"
        )
        policy.differs("minFailedTaskCount", message, (*at, "completion"))
    if succeeded is not None and succeeded > 0:
        found["minSucceeded"] = succeeded
    return found


def _retries(policy: Fields, found: Json, at: Place) -> None:
    fancy = policy.boolean("fancyRetryPolicy", default=False)
    count = policy.integer("maxRetryCount", _ALWAYS, MAX_INT32) or 0
    if count == _ALWAYS:
        found["restartOnSuccess"] = True
    found["restartLimit"] = MAX_RESTARTS
    if count >= 0:
        found["restartLimit"] = min(count, MAX_RESTARTS)
    if fancy:
        if count < 0:
            message = f"{count}: no bound there, {MAX_RESTARTS} counted restarts here"
            policy.differs("maxRetryCount", message, (*at, "restartLimit"))
        # After a conflict over a shared resource, tasks must not all restart at once.
        rule = {"action": "Ignore", "exitCodes": [201]}
        found["restartRules"] = [rule | {"minDelaySeconds": 60, "maxDelaySeconds": 900}]
        message = (
            "fancyRetryPolicy is the table of docs/failures.md: 200 and 201 do not count, 210 "
            "fails the job. "
        )
        policy.differs("fancyRetryPolicy", message + jobs.OUT_OF_MEMORY, (*at, "restartLimit"))
        return
    action = "Restart" if count >= 0 else "Ignore"
    found["restartRules"] = [{"action": action}]
    counted = "counts, also of evicted pods" if count >= 0 else "is retried, uncounted"
    message = f"every failure {counted}; a pod that a user deletes is replaced uncounted"
    policy.differs("fancyRetryPolicy", message, (*at, "restartRules"))
