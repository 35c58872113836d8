"""Finds out what a user's commands need and do not have: server, definitions, operator, rights.

It only reads.
Each check says what is known with the rights of this user; what cannot be seen is no fault.
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
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.scalers import ScaleIn, ScaleOut
from elasticjob_api.times import parse_time
from elasticjob_kube.errors import KubeError, NotFound, Refused
from elasticjob_kube.resources import (
    ADMISSION_POLICIES,
    ELASTIC_JOBS,
    KUEUE_WORKLOADS,
    LEASES,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
)

from elasticjob_client.cluster import Access, Cluster, open_cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.rights import NEEDS, REVIEWS, Need, Right
from elasticjob_client.served_fields import difference, in_words

State = Literal["Good", "Bad", "Note"]
OLDEST_SERVER = (1, 30)
POLICIES = ("elasticjob-masters-plan-for-their-own-job", "elasticjob-masters-write-progress-only")
OPERATOR_NAMESPACE = "elasticjob-system"
_KINDS: dict[str, type[msgspec.Struct]] = {
    "ElasticJob": ElasticJob,
    "ScalePlan": ScalePlan,
    "ScaleIn": ScaleIn,
    "ScaleOut": ScaleOut,
}
_PLURALS = {resource.plural for resource in (ELASTIC_JOBS, SCALE_PLANS, SCALE_INS, SCALE_OUTS)}
_LEASE_TOLERANCE_SECONDS = 60.0
"""Beyond the time for which a lease is valid: so much the clocks of this machine and the operator's
may differ.
"""
_INSTALL = "kubectl apply --server-side --force-conflicts -f crds/ (docs/install.md)"
_REQUEST_SECONDS = 10.0


@dataclass(frozen=True)
class Finding:
    """What a check has found.

    Attributes:
        check: what was looked at.
        state: Good; Bad: something is missing; Note: not needed, or not to be seen.
        message: what was found.
        remedy: what to do; empty where nothing is needed.
    """

    check: str
    state: State
    message: str
    remedy: str = ""


async def diagnose(
    access: Access, *, operator_namespace: str = OPERATOR_NAMESPACE, kueue: bool = False
) -> list[Finding]:
    """Return what was found, in the order in which one thing needs the other.

    Args:
        access: of the user.
        operator_namespace: where to look for the operator first.
        kueue: also look for Kueue.
    """
    try:
        async with open_cluster(access) as cluster:
            return [
                finding async for finding in _findings(cluster, operator_namespace, kueue=kueue)
            ]
    except (ClientError, OSError, ValueError) as error:  # a kubeconfig may be wrong in any part
        problem = str(error).removeprefix("no usable kubeconfig: ").partition("; set KUBECONFIG")[0]
        return [
            Finding(
                "kubeconfig", "Bad", problem, "set KUBECONFIG, or give --kubeconfig and --context"
            )
        ]


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
    said = str(version.get("gitVersion", ""))
    found = re.match(r"v?(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_SERVER:
        oldest = ".".join(map(str, OLDEST_SERVER))
        return Finding(
            "server", "Bad", f"Kubernetes {said or '?'}", f"Kubernetes {oldest} or newer is needed"
        )
    return Finding("server", "Good", f"Kubernetes {said}, namespace {cluster.namespace}")


async def _definitions(cluster: Cluster) -> Finding:
    try:
        served = await _get(cluster, f"/apis/{names.API_VERSION}")
    except NotFound:
        return Finding("definitions", "Bad", f"the cluster has none of {names.GROUP}", _INSTALL)
    except KubeError as error:
        return Finding("definitions", "Note", f"cannot be seen: {error.message}")
    missing = _PLURALS - {resource["name"] for resource in served.get("resources") or ()}
    if missing:
        return Finding(
            "definitions", "Bad", f"the cluster has no {', '.join(sorted(missing))}", _INSTALL
        )
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
        message = f"this command is of an earlier version than the definitions, which have {in_words(found.unknown)}"
        return Finding("fields", "Note", message, "pip install --upgrade 'elasticjob[cli]'")
    return Finding(
        "fields", "Good", "the definitions have the fields of this version, and no others"
    )


async def _policies(cluster: Cluster) -> Finding:
    try:
        found = await cluster.kube.list(ADMISSION_POLICIES)
    except KubeError as error:
        return Finding("policies", "Note", f"cannot be seen: {error.message}")
    missing = set(POLICIES) - {policy["metadata"]["name"] for policy in found["items"]}
    if missing:
        message = f"the cluster has no {', '.join(sorted(missing))}: masters may write more than they need"
        return Finding("policies", "Bad", message, "kubectl apply -f policies/ (docs/security.md)")
    return Finding("policies", "Good", "what masters may write is bounded")


async def _operator(cluster: Cluster, namespace: str) -> Finding:
    """Look for the operator's lease, which the leading one renews."""
    candidates = dict.fromkeys((namespace, cluster.namespace, "default"))
    seen: list[Json] = []
    hidden: list[str] = []
    for each in candidates:
        try:
            seen.append(await cluster.kube.get(LEASES, each, names.OPERATOR))
        except NotFound:
            continue
        except KubeError:
            hidden.append(each)
    if seen:
        return min(
            (_lease(lease, time.time()) for lease in seen),
            key=lambda finding: finding.state != "Good",
        )
    waiting = await _jobs_without_operator(cluster)
    remedy = "kubectl get pods -n elasticjob-system; make deploy or helm install installs it (docs/install.md)"
    if waiting:
        return Finding("operator", "Bad", f"nobody has taken up job {waiting}", remedy)
    if hidden:
        return Finding("operator", "Note", f"its lease cannot be read in {', '.join(hidden)}")
    where = ", ".join(candidates)
    return Finding(
        "operator",
        "Bad",
        f"no lease {names.OPERATOR} in {where}",
        f"{remedy}; or --operator-namespace",
    )


def _lease(lease: Json, now: float) -> Finding:
    spec = lease.get("spec") or {}
    where = lease["metadata"]["namespace"]
    holder = spec.get("holderIdentity")
    renewed = spec.get("renewTime")
    remedy = f"kubectl get pods -n {where}; kubectl logs -n {where} deployment/{names.OPERATOR}"
    if not holder or not renewed:
        return Finding(
            "operator", "Bad", f"nobody leads in {where}: the last one has ended", remedy
        )
    age = now - parse_time(renewed)
    if age > spec.get("leaseDurationSeconds", 0) + _LEASE_TOLERANCE_SECONDS:
        return Finding(
            "operator", "Bad", f"{holder} in {where} has not been heard for {age:.0f} s", remedy
        )
    return Finding("operator", "Good", f"{holder} leads in {where}")


async def _jobs_without_operator(cluster: Cluster) -> str:
    """Return the name of a job that has waited for an operator.

    Empty if there is none, or none to be seen.
    """
    try:
        found = await cluster.kube.list(ELASTIC_JOBS, cluster.namespace)
    except KubeError:
        return ""
    longest = time.time() - _LEASE_TOLERANCE_SECONDS
    waiting = (
        str(job["metadata"]["name"])
        for job in found["items"]
        if not job.get("status") and parse_time(job["metadata"]["creationTimestamp"]) < longest
    )
    return next(waiting, "")


async def _rights(cluster: Cluster) -> Sequence[Finding]:
    """Return a finding for each kind of command.

    Those that need what this user may not do say what it is.
    """
    needed = list(dict.fromkeys(right for need in NEEDS for right in need.rights))

    async def may(right: Right) -> bool:
        answer = await cluster.kube.create(REVIEWS, None, right.review(cluster.namespace))
        return bool((answer.get("status") or {}).get("allowed"))

    try:
        answers = dict(zip(needed, await asyncio.gather(*map(may, needed)), strict=True))
    except KubeError as error:
        return [Finding("rights", "Note", f"cannot be asked for: {error.message}")]
    return [
        _right(need, [each for each in need.rights if not answers[each]], cluster.namespace)
        for need in NEEDS
    ]


def _right(need: Need, missing: Sequence[Right], namespace: str) -> Finding:
    if not missing:
        return Finding("rights", "Good", need.commands)
    message = f"{need.commands}: you may not {', '.join(map(str, missing))} in {namespace}"
    return Finding(
        "rights",
        "Bad",
        message,
        f"let an administrator bind ClusterRole {need.role} to you in {namespace}",
    )


async def _resize(cluster: Cluster) -> Finding:
    try:
        served = await _get(cluster, "/api/v1")
    except KubeError as error:
        return Finding("resize", "Note", f"cannot be seen: {error.message}")
    if any(resource["name"] == "pods/resize" for resource in served.get("resources") or ()):
        return Finding("resize", "Good", "CPU and memory of running pods change in place")
    return Finding(
        "resize",
        "Note",
        "CPU and memory change by replacing pods; in place from Kubernetes 1.33 on",
    )


async def _kueue(cluster: Cluster) -> Finding:
    try:
        await _get(cluster, f"/apis/{KUEUE_WORKLOADS.api_version}")
    except NotFound:
        remedy = "install or upgrade Kueue, and start the operator with --kueue (docs/kueue.md)"
        return Finding("kueue", "Bad", f"the cluster has no {KUEUE_WORKLOADS.api_version}", remedy)
    except KubeError as error:
        return Finding("kueue", "Note", f"cannot be seen: {error.message}")
    return Finding("kueue", "Good", f"the cluster has {KUEUE_WORKLOADS.api_version}")


async def _get(cluster: Cluster, path: str) -> Json:
    found: Json = msgspec.json.decode(
        await cluster.kube.request("GET", path, seconds=_REQUEST_SECONDS)
    )
    return found
