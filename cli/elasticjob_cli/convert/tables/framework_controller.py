"""The fields of FrameworkController's Framework, and the variables of its tasks. Pure."""

from __future__ import annotations

from elasticjob_cli.convert.tables.rows import Table, changed, kept, lost

_ROLE = "replicaSpecs.<role>"
_THEIRS = "spec.taskRoles[]"
_COMPLETION = f"{_THEIRS}.frameworkAttemptCompletionPolicy"
_RETRY = (
    "[retries of the job](../failures.md#retries-of-the-job): -1 `OnFailure` without a limit, -2 "
    "`Always`, with `fancyRetryPolicy` `OnTransient`, also for -2. A failure that passes replaces "
    "its member here, and ends no attempt"
)
_OWN = "has no equivalent: the object does not exist here"

FRAMEWORK: Table = (
    kept("spec.description", "metadata.annotations.description"),
    changed(
        "spec.executionType",
        "runPolicy.stop",
        "`Create` is `runPolicy.suspend: true`. `Stop` is [`stop: true`](../scaling.md#stop): the "
        "members are drained first; `Failed`, with the reason `Stopped`",
    ),
    changed("spec.retryPolicy.fancyRetryPolicy", "runPolicy.retry.policy", _RETRY),
    changed("spec.retryPolicy.maxRetryCount", "runPolicy.retry.limit", _RETRY),
    changed(f"{_THEIRS}.name", "replicaSpecs.<role>", "32 at most"),
    changed(
        f"{_THEIRS}.taskNumber",
        f"{_ROLE}.replicas, {_ROLE}.minReplicas",
        "`minReplicas` is 1, with the barrier all, and invented; [10,000 of a "
        "role](../scaling.md#large-jobs) at most",
    ),
    changed(
        f"{_COMPLETION}.minFailedTaskCount",
        f"{_ROLE}.completion.minFailed",
        "below 1, or unset, it is 10000; if no task of a role succeeds the job has failed",
    ),
    changed(
        f"{_COMPLETION}.minSucceededTaskCount", f"{_ROLE}.completion.minSucceeded", "-1: unset"
    ),
    changed(
        f"{_THEIRS}.task.retryPolicy.maxRetryCount",
        f"{_ROLE}.restartLimit",
        "-1 and -2 are 10000, -2 also `restartOnSuccess: true`; with the barrier lost: a task that "
        "has succeeded does not run again",
    ),
    changed(
        f"{_THEIRS}.task.retryPolicy.fancyRetryPolicy",
        f"{_ROLE}.restartRules",
        "true: the [table of failures](../failures.md); OOMKilled is permanent there. 200 and 201 "
        "are uncounted, 201 with a random delay of 60 to 900 s, 210 ends the job, in both. false: "
        "`[{action: Restart}]`, with -1 and -2 `Ignore`",
    ),
    changed(
        f"{_THEIRS}.task.podGracefulDeletionTimeoutSec",
        f"{_ROLE}.podForceDeleteSeconds",
        "unset in both: at most one pod of a task at any time",
    ),
    kept(f"{_THEIRS}.task.pod", f"{_ROLE}.template"),
)

VARIABLES: Table = (
    *(
        changed(name, f"{_ROLE}.template", "`env` of every container")
        for name in (
            "FC_FRAMEWORK_NAME", "FC_FRAMEWORK_NAMESPACE", "FC_TASKROLE_NAME", "FC_TASK_INDEX",
            "FC_POD_NAME", "FC_POD_UID",
        )
    ),
    *(
        changed(
            name,
            f"{_ROLE}.template",
            "`env`, from the [pod's annotations](../failures.md#for-scripts) and labels",
        )
        for name in (
            "FC_FRAMEWORK_ATTEMPT_ID", "FC_TASK_ATTEMPT_ID", "FC_FRAMEWORK_UID",
            "FC_TASK_ATTEMPT_INSTANCE_UID",
        )
    ),
    changed(
        "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID",
        f"{_ROLE}.template",
        "`env`; it has the job's UID in it, not a ConfigMap's",
    ),
    *(
        lost(name, _OWN)
        for name in ("FC_CONFIGMAP_NAME", "FC_CONFIGMAP_UID", "FC_TASKROLE_UID", "FC_TASK_UID")
    ),
)  # fmt: skip
