"""Reads fields of Kubernetes objects in JSON form without the operator's functions."""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.meta import Json

MOST_RETAINED = 2
"""The most replaced failed pods that a history retains: few, so that histories reach the bound."""
FINISHED_JOB_PHASES = ("Succeeded", "Failed", "Stopped")
FINISHED_PLAN_PHASES = ("Succeeded", "PartiallySucceeded", "Failed", "Superseded", "Cancelled")
FINISHED_REQUEST_PHASES = ("ScaleSucceeded", "ScaleFailed")


def parsed(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def owners(item: Json) -> list[Json]:
    found: list[Json] = item["metadata"].get("ownerReferences") or []
    return found


def requested_by(plan: Json) -> str:
    """Return the UID of the ScaleIn or ScaleOut that a plan executes, or else the plan's UID."""
    made_for = (
        owner["uid"] for owner in owners(plan) if owner.get("kind") in ("ScaleIn", "ScaleOut")
    )
    uid: str = next(made_for, plan["metadata"]["uid"])
    return uid


def controller(pod: Json) -> str | None:
    """Return the UID of the job that a pod was created for.

    The environment is read first, because Kubernetes does not allow edits of it. Pods without an
    agent lack the variable; their owner is read instead, which no history edits.
    """
    made_for = (owner["uid"] for owner in owners(pod) if owner["kind"] == "ElasticJob")
    return _environment(pod).get(names.ENV_JOB_UID) or next(made_for, None)


def has_agent(pod: Json) -> bool:
    """Return whether an agent starts the pod's program, or the program is the master."""
    return names.ENV_JOB_UID in _environment(pod)


def pod_role(pod: Json) -> str:
    environment = _environment(pod)
    without_agent = pod["spec"].get("hostname", "").rpartition("-")[0]
    return str(environment.get(names.ENV_ROLE, names.ROLE_MASTER if environment else without_agent))


def pod_index(pod: Json) -> str:
    without_agent = pod["spec"].get("hostname", "").rpartition("-")[2]
    return str(_environment(pod).get(names.ENV_INDEX, "" if has_agent(pod) else without_agent))


def claims_of(pod: Json) -> list[str]:
    """Return the names of the volume claims that a pod uses."""
    volumes = pod["spec"].get("volumes") or ()
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in volumes
        if "persistentVolumeClaim" in volume
    ]


def _environment(pod: Json) -> Json:
    variables = pod["spec"]["containers"][0].get("env", ())
    return {each["name"]: each["value"] for each in variables if "value" in each}


def is_terminating(item: Json) -> bool:
    return "deletionTimestamp" in item["metadata"]


def is_live(pod: Json) -> bool:
    return pod["status"].get("phase") in ("Pending", "Running")


def is_failure_of_program(pod: Json) -> bool:
    """Return whether the pod's status shows that its program failed by itself."""
    status = pod["status"]
    disrupted = any(
        condition["type"] == "DisruptionTarget" for condition in status.get("conditions", ())
    )
    if status.get("phase") != "Failed" or status.get("reason") or disrupted:
        return False
    ends = [each["state"].get("terminated", {}) for each in status.get("containerStatuses", ())]
    return any(
        end.get("exitCode") in (1, 3, 139) or end.get("reason") == "OOMKilled" for end in ends
    )


def is_ready(pod: Json) -> bool:
    return any(
        c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ())
    )


def excluded_nodes(pod: Json) -> set[str]:
    """Return the nodes that a pod's affinity excludes.

    The pods of a history have no other affinity than this.
    """
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms", ())
    return {field["values"][0] for term in terms for field in term["matchFields"]}


def belongs_to_other_job(plan: Json, uid: str) -> bool:
    """Return whether the plan belongs to an earlier job of the same name."""
    jobs = {owner["uid"] for owner in owners(plan) if owner["kind"] == "ElasticJob"}
    label = plan["metadata"].get("labels", {}).get(names.LABEL_JOB_UID, uid)
    return label != uid or bool(jobs and uid not in jobs)
