"""The job's one master pod: created, and replaced under a new name when it ends."""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJobStatus
from msgspec.structs import replace

from elasticjob_operator.core import pods
from elasticjob_operator.core.actions import CreatePod, DeletePod, EmitEvent
from elasticjob_operator.core.failures import classify, describe
from elasticjob_operator.core.members import Care
from elasticjob_operator.core.observed import Defaults, Observed, Pod

_KILLED = (137, 143)


def care_for_master(seen: Observed, status: ElasticJobStatus, *, defaults: Defaults) -> Care:
    """Return what the master needs. A second one is not started before the first is gone: they share one state."""
    care, job = Care(status), seen.job
    masters = seen.masters
    live = [pod for pod in masters if not pod.finished]
    for pod in masters:
        if pod.finished and _counted(pod) and status.master.restarts <= pod.restarts:
            care.status = replace(care.status, master=replace(care.status.master, restarts=pod.restarts + 1))
            care.events.append(EmitEvent("MasterFailed", f"{pod.name}: {describe(pod)}", warning=True))
            if classify(pod).action == "FailJob":
                care.failure = f"the master cannot run: {describe(pod)}"
            elif pod.restarts + 1 > job.spec.master.restart_limit:
                care.failure = (
                    f"the master failed and spec.master.restartLimit {job.spec.master.restart_limit} is used up: "
                    f"{describe(pod)}"
                )
        if not pod.leaving and (pod.finished or pod is not live[-1]):
            care.deletes.append(DeletePod(pod.name, pod.metadata.uid))
    if not live and not care.failure:
        number = care.status.master.incarnations
        care.creates.append(
            CreatePod(pods.master_pod(job, number, restarts=care.status.master.restarts, defaults=defaults))
        )
        care.status = replace(care.status, master=replace(care.status.master, incarnations=number + 1))
    return care


def _counted(pod: Pod) -> bool:
    ended = pod.terminated
    if ended is not None and ended.exit_code in _KILLED and ended.reason != "OOMKilled":
        return False
    return pod.status.phase == "Succeeded" or classify(pod).action != "Ignore"
