"""Checks server, definitions, operator and rights for the commands of a user. It only reads.

Each check uses the rights of the user. An object that the user may not see is not a fault.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_api.scale_requests import ScaleIn, ScaleOut
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import parse_time
from elasticjob_kube.errors import KubeError, NotFound, Refused
from elasticjob_kube.resources import (
    ADMISSION_POLICIES,
    DISRUPTION_BUDGETS,
    ELASTIC_JOBS,
    KUEUE_WORKLOADS,
    LEASES,
    NATIVE_POD_GROUPS,
    POD_AUTOSCALERS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
)

from elasticjob_client.access import Access
from elasticjob_client.budgets import (
    BUDGET_REMEDY,
    SCALER_REMEDY,
    budget_problems,
    scaler_problems,
)
from elasticjob_client.cluster import Cluster, open_cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.rights import NEEDS, REVIEWS, Need, Right
from elasticjob_client.served_fields import difference, in_words

State = Literal["Good", "Bad", "Note"]
OLDEST_SERVER = (1, 30)
POLICIES = (
    "elasticjob-masters-plan-for-their-own-job",
    "elasticjob-masters-write-progress-only",
)
OPERATOR_NAMESPACE = "elasticjob-system"
_KINDS: dict[str, type[msgspec.Struct]] = {
    "ElasticJob": ElasticJob,
    "ScalePlan": ScalePlan,
    "ScaleIn": ScaleIn,
    "ScaleOut": ScaleOut,
}
_PLURALS = {resource.plural for resource in (ELASTIC_JOBS, SCALE_PLANS, SCALE_INS, SCALE_OUTS)}
_LEASE_TOLERANCE_SECONDS = 60.0
"""The clocks of this machine and of the operator may differ by this much."""
_APPLY = "kubectl apply --server-side --force-conflicts -f"
_INSTALL = f"{_APPLY} crds/ (docs/install.md)"
_REQUEST_SECONDS = 10.0


@dataclass(frozen=True)
class Finding:
    """The result of a check.

    Attributes:
        check: the name of the check.
        state: Good; Bad: something is missing; Note: not needed, or not visible to the user.
        message: the details.
        remedy: what the user should do; may be empty.
    """

    check: str
    state: State
    message: str
    remedy: str = ""


class _Jobs(msgspec.Struct, frozen=True):
    items: list[ElasticJob] = []


async def diagnose(
    access: Access, *, operator_namespace: str = OPERATOR_NAMESPACE, kueue: bool = False
) -> list[Finding]:
    """Return the findings; each check depends on the earlier ones.

    Args:
        access: the cluster and namespace.
        operator_namespace: the first namespace in which the operator is searched.
        kueue: also check Kueue.
    """
    try:
        async with open_cluster(access) as cluster:
            return [
                finding async for finding in _findings(cluster, operator_namespace, kueue=kueue)
            ]
    except (ClientError, OSError, ValueError) as error:  # an invalid kubeconfig raises any of these
        problem = str(error).removeprefix("no usable kubeconfig: ").partition("; set KUBECONFIG")[0]
        remedy = "set KUBECONFIG, or give --kubeconfig and --context"
        return [Finding("kubeconfig", "Bad", problem, remedy)]


async def _findings(
    cluster: Cluster, operator_namespace: str, *, kueue: bool
) -> AsyncIterator[Finding]:
    server = await _server(cluster)
    yield server
    if server.state == "Bad":
        return
    definitions = await _definitions(cluster)
    yield definitions
    if definitions.state == "Good":
        yield await _fields(cluster)
    yield await _policies(cluster)
    yield await _operator(cluster, operator_namespace)
    for finding in await _rights(cluster):
        yield finding
    yield await _resize(cluster)
    for finding in await _budgets(cluster) + await _gangs(cluster):
        yield finding
    if kueue:
        yield await _kueue(cluster)


async def _server(cluster: Cluster) -> Finding:
    try:
        version = await _get(cluster, "/version")
    except Refused as error:
        remedy = "log in again, or use a context with other credentials"
        return Finding("server", "Bad", f"it does not accept this user: {error.message}", remedy)
    except KubeError as error:
        remedy = "check the context's address, and whether the cluster runs"
        return Finding("server", "Bad", error.message, remedy)
    number = str(version.get("gitVersion", ""))
    found = re.match(r"v?(\d+)\.(\d+)", number)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_SERVER:
        remedy = f"Kubernetes {'.'.join(map(str, OLDEST_SERVER))} or newer is needed"
        return Finding("server", "Bad", f"Kubernetes {number or '?'}", remedy)
    return Finding("server", "Good", f"Kubernetes {number}, namespace {cluster.namespace}")


async def _definitions(cluster: Cluster) -> Finding:
    try:
        served = await _get(cluster, f"/apis/{names.API_VERSION}")
    except NotFound:
        return Finding("definitions", "Bad", f"the cluster has none of {names.GROUP}", _INSTALL)
    except KubeError as error:
        return Finding("definitions", "Note", f"is not visible: {error.message}")
    missing = _PLURALS - {resource["name"] for resource in served.get("resources") or ()}
    if missing:
        message = f"the cluster has no {', '.join(sorted(missing))}"
        return Finding("definitions", "Bad", message, _INSTALL)
    return Finding("definitions", "Good", f"{', '.join(sorted(_PLURALS))} of {names.API_VERSION}")


async def _fields(cluster: Cluster) -> Finding:
    try:
        document = await _get(cluster, f"/openapi/v3/apis/{names.API_VERSION}")
    except KubeError as error:
        return Finding("fields", "Note", f"cannot be compared: {error.message}")
    found = difference(_KINDS, document.get("components", {}).get("schemas", {}))
    if found.unserved:
        message = f"the definitions are of an earlier version: they lack {in_words(found.unserved)}"
        return Finding("fields", "Bad", message, _INSTALL)
    if found.unknown:
        newer = in_words(found.unknown)
        message = f"this command is of an earlier version than the definitions, which have {newer}"
        return Finding("fields", "Note", message, "pip install --upgrade 'elasticjob[cli]'")
    return Finding("fields", "Good", "the definitions have exactly the fields of this version")


async def _policies(cluster: Cluster) -> Finding:
    try:
        found = await cluster.kube.list(ADMISSION_POLICIES)
    except KubeError as error:
        return Finding("policies", "Note", f"is not visible: {error.message}")
    missing = set(POLICIES) - {policy["metadata"]["name"] for policy in found["items"]}
    if missing:
        policies = ", ".join(sorted(missing))
        message = f"the cluster lacks {policies}, which check what masters write"
        return Finding("policies", "Bad", message, f"{_APPLY} policies/ (docs/security.md)")
    return Finding("policies", "Good", "the writes of masters are checked")


async def _operator(cluster: Cluster, namespace: str) -> Finding:
    """Check the operator's lease, which the leading operator renews."""
    candidates = dict.fromkeys((namespace, cluster.namespace, "default"))
    leases: list[Json] = []
    hidden_namespaces: list[str] = []
    for each in candidates:
        try:
            leases.append(await cluster.kube.get(LEASES, each, names.OPERATOR))
        except NotFound:
            continue
        except KubeError:
            hidden_namespaces.append(each)
    if leases:
        findings = [_lease(lease, time.time()) for lease in leases]
        return min(findings, key=lambda finding: finding.state != "Good")
    waiting = await _job_without_operator(cluster)
    pods = f"kubectl get pods -n {OPERATOR_NAMESPACE}"
    remedy = f"{pods}; make deploy or helm install installs it (docs/install.md)"
    if waiting:
        return Finding("operator", "Bad", f"no operator handles job {waiting}", remedy)
    if hidden_namespaces:
        where = ", ".join(hidden_namespaces)
        return Finding("operator", "Note", f"its lease cannot be read in {where}")
    message = f"no lease {names.OPERATOR} in {', '.join(candidates)}"
    return Finding("operator", "Bad", message, f"{remedy}; or --operator-namespace")


def _lease(lease: Json, now: float) -> Finding:
    spec = lease.get("spec") or {}
    where = lease["metadata"]["namespace"]
    holder = spec.get("holderIdentity")
    renewed = spec.get("renewTime")
    remedy = f"kubectl get pods -n {where}; kubectl logs -n {where} deployment/{names.OPERATOR}"
    if not holder or not renewed:
        return Finding("operator", "Bad", f"no operator leads in {where}: it has exited", remedy)
    age = now - parse_time(renewed)
    if age > spec.get("leaseDurationSeconds", 0) + _LEASE_TOLERANCE_SECONDS:
        message = f"{holder} in {where} has not renewed its lease for {age:.0f} s"
        return Finding("operator", "Bad", message, remedy)
    return Finding("operator", "Good", f"{holder} leads in {where}")


async def _job_without_operator(cluster: Cluster) -> str:
    """Return the name of a job that no operator has handled; empty if no such job is visible."""
    try:
        found = await cluster.kube.list(ELASTIC_JOBS, cluster.namespace)
    except KubeError:
        return ""
    latest_creation = time.time() - _LEASE_TOLERANCE_SECONDS
    for job in found["items"]:
        created = parse_time(job["metadata"]["creationTimestamp"])
        if not job.get("status") and created < latest_creation:
            return str(job["metadata"]["name"])
    return ""


async def _rights(cluster: Cluster) -> Sequence[Finding]:
    """Return a finding for each kind of command; it names the rights that the user lacks."""
    needed = list(dict.fromkeys(right for need in NEEDS for right in need.rights))

    async def may(right: Right) -> bool:
        answer = await cluster.kube.create(REVIEWS, None, right.review(cluster.namespace))
        return bool((answer.get("status") or {}).get("allowed"))

    try:
        answers = dict(zip(needed, await asyncio.gather(*map(may, needed)), strict=True))
    except KubeError as error:
        return [Finding("rights", "Note", f"cannot be checked: {error.message}")]
    return [
        _right(need, [each for each in need.rights if not answers[each]], cluster.namespace)
        for need in NEEDS
    ]


def _right(need: Need, missing: Sequence[Right], namespace: str) -> Finding:
    if not missing:
        return Finding("rights", "Good", need.commands)
    message = f"{need.commands}: you may not {', '.join(map(str, missing))} in {namespace}"
    remedy = f"let an administrator bind ClusterRole {need.role} to you in {namespace}"
    return Finding("rights", "Bad", message, remedy)


async def _resize(cluster: Cluster) -> Finding:
    try:
        served = await _get(cluster, "/api/v1")
    except KubeError as error:
        return Finding("resize", "Note", f"is not visible: {error.message}")
    if any(resource["name"] == "pods/resize" for resource in served.get("resources") or ()):
        return Finding("resize", "Good", "CPU and memory of running pods change in place")
    message = "CPU and memory change by replacing pods; in place from Kubernetes 1.33 on"
    return Finding("resize", "Note", message)


async def _budgets(cluster: Cluster) -> list[Finding]:
    """Return what is wrong with budgets and autoscalers that the user may list."""
    kube = cluster.kube
    try:
        budgets = (await kube.list(DISRUPTION_BUDGETS, cluster.namespace))["items"]
        scalers = (await kube.list(POD_AUTOSCALERS, cluster.namespace))["items"]
        jobs = (await kube.list(ELASTIC_JOBS, cluster.namespace, as_type=_Jobs)).items
    except (KubeError, msgspec.ValidationError):
        return []
    problems = [(each, BUDGET_REMEDY) for each in budget_problems(budgets)]
    problems += [(each, SCALER_REMEDY) for each in scaler_problems(scalers, jobs)]
    return [Finding("budgets", "Bad", message, remedy) for message, remedy in problems]


async def _gangs(cluster: Cluster) -> list[Finding]:
    """Return the native gangs that run although no scheduler has written of them.

    A scheduler with the gate does so when it places a gang; another one ignores the PodGroup.
    """
    of_jobs = {"label_selector": names.LABEL_JOB_UID}
    try:
        groups = (await cluster.kube.list(NATIVE_POD_GROUPS, cluster.namespace, **of_jobs))["items"]
        jobs = (await cluster.kube.list(ELASTIC_JOBS, cluster.namespace, as_type=_Jobs)).items
    except (KubeError, msgspec.ValidationError):
        return []
    running = {job.metadata.uid: job.metadata.name for job in jobs if job.status.phase == "Running"}
    ignored = [
        running[uid]
        for group in groups
        if (uid := group["metadata"]["labels"][names.LABEL_JOB_UID]) in running
        and not group.get("status", {}).get("conditions")
    ]
    if not ignored:
        return []
    message = f"the scheduler ignores the native gang of job {min(ignored)}"
    remedy = "start the scheduler, too, with the feature gate GenericWorkload (docs/placement.md)"
    return [Finding("gangs", "Bad", message, remedy)]


async def _kueue(cluster: Cluster) -> Finding:
    try:
        await _get(cluster, f"/apis/{KUEUE_WORKLOADS.api_version}")
    except NotFound:
        remedy = "install or upgrade Kueue, and start the operator with --kueue (docs/kueue.md)"
        return Finding("kueue", "Bad", f"the cluster has no {KUEUE_WORKLOADS.api_version}", remedy)
    except KubeError as error:
        return Finding("kueue", "Note", f"is not visible: {error.message}")
    return Finding("kueue", "Good", f"the cluster has {KUEUE_WORKLOADS.api_version}")


async def _get(cluster: Cluster, path: str) -> Json:
    found: Json = msgspec.json.decode(
        await cluster.kube.request("GET", path, seconds=_REQUEST_SECONDS)
    )
    return found
