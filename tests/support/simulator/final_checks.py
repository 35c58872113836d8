"""Invariants of the state at the end of a history, after the faults and all changes."""

from __future__ import annotations

import math

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_INS, SCALE_OUTS, SCALE_PLANS

from tests.support.simulator.fake_kube import FakeKube
from tests.support.simulator.raw_objects import (
    FINISHED_JOB_PHASES,
    FINISHED_PLAN_PHASES,
    FINISHED_REQUEST_PHASES,
    MOST_RETAINED,
    controller,
    is_live,
    is_ready,
    is_terminating,
    owners,
    parsed,
    pod_index,
    pod_role,
)


def check_final_state(kube: FakeKube, now: float) -> None:
    """Check that every plan and request has ended, and that every job has exactly its pods."""
    for plan in kube.all(SCALE_PLANS):
        phase = plan.get("status", {}).get("phase")
        name = plan["metadata"]["name"]
        assert phase in FINISHED_PLAN_PHASES, f"{name} has no end: {plan.get('status')}"
    for request in (*kube.all(SCALE_INS), *kube.all(SCALE_OUTS)):
        phase = request.get("status", {}).get("phase")
        name = request["metadata"]["name"]
        assert phase in FINISHED_REQUEST_PHASES, f"{name} has no end: {request.get('status')}"
    jobs = {job["metadata"]["uid"]: job for job in kube.all(ELASTIC_JOBS)}
    for pod in kube.all(PODS):
        assert not owners(pod) or controller(pod) in jobs, f"{pod['metadata']['name']} is left over"
    for uid, job in jobs.items():
        pods = [pod for pod in kube.all(PODS) if controller(pod) == uid]
        if is_terminating(job):
            assert job["metadata"].get("finalizers"), "the job is not gone"
            assert not _watched(pods), f"a deleted job has pods: {pods}"
            assert job["status"].get("phase") in FINISHED_JOB_PHASES
        else:
            _check_job(kube, job, pods)


def _check_job(kube: FakeKube, job: Json, pods: list[Json]) -> None:
    status = job["status"]
    policy = job["spec"].get("runPolicy", {})
    phase = status.get("phase")
    assert status.get("currentPlan") is None, (
        f"the job still has the plan {status.get('currentPlan')}"
    )
    live = [pod for pod in pods if is_live(pod)]
    here = {(pod_role(pod), pod_index(pod)): pod["metadata"]["name"] for pod in live}
    if phase in FINISHED_JOB_PHASES:
        assert status.get("completionTime")
        stopped = any(each["reason"] == "Stopped" for each in status["conditions"])
        kept = policy.get("cleanPodPolicy") == "None" and not stopped
        assert not here or kept, f"an ended job has pods: {here}"
        assert not [pod for pod in _watched(pods) if pod_role(pod) == names.ROLE_MASTER], (
            "an ended job has a master"
        )
        assert policy.get("cleanPodPolicy") != "All" or not _watched(pods), (
            f"an ended job has pods: {pods}"
        )
        return
    assert not policy.get("stop"), f"a job that was stopped is {phase}"
    if policy.get("suspend"):
        assert phase == "Suspended", f"a suspended job is {phase}"
        assert not _watched(pods), f"a suspended job has pods: {pods}"
        return
    _check_retained(job, pods)
    too_many = _roles_above_max(job)
    if too_many:
        assert "above maxReplicas" in status.get("message", ""), "the user is not told what to do"
    if is_short := bool((_lost(job) or too_many) and phase in ("Pending", "Starting")):
        phase = "Running"  # members without a pod never get one, so the job cannot reach it
    assert phase == "Running", f"the job is {phase}: {status.get('message')}"
    assert sum(pod_role(pod) == names.ROLE_MASTER for pod in live) == 1, "there is not one master"
    assert all(is_ready(pod) for pod in live)
    for role, spec in job["spec"]["replicaSpecs"].items():
        replica = status["replicaStatuses"][role]
        members = parsed(replica.get("indices", ""))
        done = parsed(replica.get("succeededIndices", ""))
        wanted = members - done - {index for other, index in _lost(job) if other == role}
        found = {int(index) for other, index in here if other == role}
        if is_short and spec.get("dependsOn") and not found:
            wanted = frozenset()  # the role that it depends on may never be ready
        if role in too_many:
            assert len(found & wanted) >= spec["maxReplicas"], f"{role}: pods of {sorted(found)}"
            wanted &= found
        assert found == wanted, f"{role}: pods of {sorted(found)}, wanted {sorted(wanted)}"
        assert replica.get("desired", 0) == len(members)
        assert replica.get("ready", 0) == replica.get("active", 0) == len(found), (
            f"{role} is shown as {replica}"
        )
        _check_size(kube, job, role, spec.get("replicas", 1), len(members))


def _check_retained(job: Json, pods: list[Json]) -> None:
    """Check that of the failed pods with a replacement only a few are retained."""
    lost = {(role, str(index)) for role, index in _lost(job)}
    current = _current_pods(job)
    retained = [
        pod
        for pod in _watched(pods)
        if pod["status"]["phase"] == "Failed"
        and (pod_role(pod), pod_index(pod)) not in lost
        and pod["metadata"]["name"] not in current
    ]
    names_of = [pod["metadata"]["name"] for pod in retained]
    assert len(retained) <= MOST_RETAINED, f"{names_of} are left"
    for pod in retained:
        role = pod_role(pod)
        index = pod_index(pod)
        ends = [each["state"]["terminated"] for each in pod["status"].get("containerStatuses", ())]
        codes = {end["exitCode"] for end in ends} - {names.EXIT_DRAINED}
        assert codes, f"{names_of} are left, also one that has not failed by itself"
        members = parsed(job["status"]["replicaStatuses"].get(role, {}).get("indices", ""))
        assert role == names.ROLE_MASTER or int(index) in members, (
            f"{names_of} are left, the members are {members}"
        )


def _current_pods(job: Json) -> set[str]:
    """Return the names of the members' latest pods.

    If a role waits for another one, its latest pod may have failed.
    """
    return {
        names.member_pod(
            job["metadata"]["name"],
            role,
            index,
            replica.get("incarnationByIndex", {}).get(str(index), 0),
        )
        for role, replica in job["status"]["replicaStatuses"].items()
        for index in parsed(replica.get("indices", ""))
    }


def _watched(pods: list[Json]) -> list[Json]:
    """Return the live pods, and the ended pods that still have the label the operator watches."""
    return [pod for pod in pods if is_live(pod) or names.LABEL_JOB_UID in pod["metadata"]["labels"]]


def _lost(job: Json) -> set[tuple[str, int]]:
    """Return the members that have no restarts left; the job continues without them."""
    return {
        (role, int(index))
        for role, replica in job["status"]["replicaStatuses"].items()
        for index, number in replica.get("restartsByIndex", {}).items()
        if number > job["spec"]["replicaSpecs"][role].get("restartLimit", 3)
    }


def _roles_above_max(job: Json) -> set[str]:
    """Return the roles with more members than `maxReplicas`, as the plan to remove them failed.

    The operator creates no pods above the bound. What else the plan asked for was refused, so the
    user must edit the spec.
    """
    return {
        role
        for role, spec in job["spec"]["replicaSpecs"].items()
        if len(parsed(job["status"]["replicaStatuses"][role].get("indices", "")))
        > spec.get("maxReplicas", math.inf)
    }


def _check_size(kube: FakeKube, job: Json, role: str, asked: int, members: int) -> None:
    """Check that a role has the spec's size, or that a plan for an edit of it did not succeed.

    That is the plan for the latest edit, or for the earlier one that asked for this size.
    """
    name = f"{job['metadata']['name']}-spec-{job['metadata']['generation']}"
    said = {
        plan["status"].get("phase")
        for plan in kube.all(SCALE_PLANS)
        if plan["metadata"]["name"] in (name, f"{name}-{role}") or _asks_for(plan, role, asked)
    }
    assert asked == members or said - {None, "Succeeded"}, (
        f"{role}: {asked} asked for, {members} in its status ({name}: {said})"
    )


def _asks_for(plan: Json, role: str, size: int) -> bool:
    roles = plan["spec"].get("replicaResourceSpecs") or {}
    replicas: int | None = roles.get(role, {}).get("replicas")
    return plan["spec"].get("source") == "Spec" and replicas == size
