"""The fields of et-operator's TrainingJob, ScaleIn and ScaleOut. Pure."""

from __future__ import annotations

from elasticjob_cli.convert.tables.rows import Row, Table, changed, kept, lost

_BOUND = "held to, which it is not there"
_LAUNCHER = "replicaSpecs.launcher"
_WORKER = "replicaSpecs.worker"
_NO_EFFECT = "has no effect there either"
_RESTARTS = (
    "6 restarts by default, but none with `Never`, which is the default; ends from outside are "
    "not counted"
)

TRAINING_JOB: Table = (
    changed("spec.etReplicaSpecs.launcher.replicas", f"{_LAUNCHER}.replicas", "1 always"),
    changed(
        "spec.etReplicaSpecs.launcher.restartPolicy", f"{_LAUNCHER}.restartLimit", "0 for `Never`"
    ),
    kept("spec.etReplicaSpecs.launcher.template", f"{_LAUNCHER}.template"),
    kept("spec.etReplicaSpecs.worker.replicas", f"{_WORKER}.replicas"),
    changed(
        "spec.etReplicaSpecs.worker.minReplicas",
        f"{_WORKER}.minReplicas",
        f"{_BOUND}; if not given it is invented, from `--min-np` or as 1",
    ),
    changed("spec.etReplicaSpecs.worker.maxReplicas", f"{_WORKER}.maxReplicas", _BOUND),
    changed(
        "spec.etReplicaSpecs.worker.restartPolicy",
        f"{_WORKER}.restartLimit",
        "0 for `Never`; else a failed worker is replaced, at most 3 times",
    ),
    kept("spec.etReplicaSpecs.worker.template", f"{_WORKER}.template"),
    kept("spec.slotsPerWorker", f"{_WORKER}.slotsPerReplica"),
    changed(
        "spec.cleanPodPolicy",
        "runPolicy.cleanPodPolicy",
        "`Running` in both by default; there it also deletes workers that have ended",
    ),
    changed("spec.restartPolicy", f"{_LAUNCHER}.restartLimit", _RESTARTS),
    changed("spec.backoffLimit", f"{_LAUNCHER}.restartLimit", _RESTARTS),
    changed("spec.launcherAttachMode", "", "not needed: the agents start the processes"),
    changed(
        "metadata.annotations.job-supervisor.kube-ai.io/job-suspended",
        "runPolicy.suspend",
        "can be resumed",
    ),
    lost(
        "metadata.annotations.job-supervisor.kube-ai.io/job-status",
        "a state of et-operator's, which nothing reads here",
    ),
    lost(
        "metadata.annotations.arena.kubeflow.org/ssh-secret",
        "its keys are not mounted: agents need none, and an ssh of your own needs a volume",
    ),
)


def _scaler(*own: Row) -> Table:
    return (
        changed("spec.selector.name", "jobName", "a valid name"),
        *own,
        changed(
            "spec.timeout",
            "timeoutSeconds",
            "the default is 600 and not 60; a script has as long again as the new pods",
        ),
        changed(
            "spec.script",
            "script",
            '`sh FILE OPTIONS "$1"`: a [script](../scaling.md#scripts) with the list of the '
            "changed pods, `pod:slots,…`, as there. The job must allow it: "
            "`runPolicy.allowScripts: true`. It need not change the hosts, which follow the "
            "members anyway. If it fails, the request fails: a ScaleIn removes nothing, a "
            "ScaleOut removes the new pods",
        ),
        changed("spec.env", "env", "values are used as they are, without a shell"),
        changed("spec.backoffLimit", "", _NO_EFFECT),
    )


SCALE_IN = _scaler(
    changed("spec.toDelete.count", "count", "the highest indices are removed"),
    changed(
        "spec.toDelete.podNames",
        "podNames",
        "as ours are called; one that is not there fails the request and removes nothing",
    ),
)
SCALE_OUT = _scaler(changed("spec.toAdd.count", "count", "the lowest free indices are added"))
