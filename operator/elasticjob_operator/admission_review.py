"""Answers the API server's question whether an object may be stored (AdmissionReview).

What is known of the job is read from the API server, not from the watches: each replica of the
operator answers, and only the leader watches. And a watch may be behind a user who creates a job
and its ScaleOut with one command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json, Object, describe_for_threads
from elasticjob_api.scale_requests import ScaleIn
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_kube.errors import NotFound
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from elasticjob_kube.session import Kube

from elasticjob_operator.core.admission import (
    Request,
    Verdict,
    is_being_scaled,
    judge_job,
    judge_request,
)
from elasticjob_operator.core.model.identity import identity_of
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.scaling.request_status import FINISHED_PHASES
from elasticjob_operator.pod_store import PodStore
from elasticjob_operator.store import TYPES

_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
_MOST_ROWS = 1000
_MOST_CHECKED = 10
"""Secrets of one job that are looked for."""
_ENDED = {*FINISHED, *FINISHED_PHASES}
_KINDS: Mapping[str, type[ElasticJob | Request]] = {
    resource.kind: each for resource, each in TYPES.items()
}


class _Question(Object, frozen=True):
    uid: str
    kind: dict[str, str]
    namespace: str
    object: msgspec.Raw
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    dry_run: bool = False


class _Review(Object, frozen=True):
    request: _Question


describe_for_threads(_Review, *_KINDS.values())


class _Pods(Object, frozen=True):
    items: list[Pod] = []


class _Table(Object, frozen=True):
    """Objects as `kubectl get` prints them: of a large plan, a few words."""

    metadata: Json = {}
    column_definitions: list[Json] = []
    rows: list[Json] = []


class _PullSecret(Object, frozen=True):
    name: str | None = None


class _PullSecrets(Object, frozen=True):
    """The part of a pod's spec, or of a service account, that names secrets of registries."""

    service_account_name: str | None = None
    service_account: str | None = None
    image_pull_secrets: list[_PullSecret] | None = None


async def answer(kube: Kube, body: bytes) -> bytes:
    """Return the AdmissionReview with the response.

    Raises:
        ValueError, RecursionError: the question, or its object, cannot be decoded.
        KubeError: the API server does not say what is known of the job.
    """
    # In a thread: large objects must not stop the work of this process.
    question, custom, before = await asyncio.to_thread(_decode, body)
    if isinstance(custom, ElasticJob):
        verdict = await asyncio.to_thread(judge_job, custom, before)
        if not verdict.refusal:
            missing = await _missing_secrets(kube, question.namespace, custom)
            verdict = Verdict(warnings=(*verdict.warnings, *missing))
    else:
        verdict = await _judge_request(kube, question, custom)
    response: Json = {"uid": question.uid, "allowed": not verdict.refusal}
    if verdict.refusal:
        response["status"] = {"code": 422, "reason": "Invalid", "message": verdict.refusal}
    response["warnings"] = [each for each in verdict.warnings if each]
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return msgspec.json.encode(review)


def _decode(body: bytes) -> tuple[_Question, ElasticJob | Request, ElasticJob | None]:
    question = msgspec.json.decode(body, type=_Review).request
    kind = _KINDS[question.kind["kind"]]
    custom = msgspec.json.decode(question.object, type=kind)
    if kind is not ElasticJob:
        return question, custom, None
    return question, custom, msgspec.json.decode(question.old_object, type=ElasticJob | None)


async def _judge_request(kube: Kube, question: _Question, request: Request) -> Verdict:
    name = request.spec.job_name
    try:
        job = await kube.get(ELASTIC_JOBS, question.namespace, name, as_type=ElasticJob)
    except NotFound:
        verdict = judge_request(None, request)
        # A dry run has not stored a job that is created with its request, as GitOps tools do first.
        return Verdict(warnings=(verdict.refusal,)) if question.dry_run else verdict
    pods = await _pods_of(kube, job) if _names_pods(request) else PodStore()
    observed = Observed(job=job, pods=pods.of(identity_of(job)))
    verdict = await asyncio.to_thread(judge_request, observed, request)
    if verdict.by_size and (others := await _others(kube, job)):
        # When it is the turn of the request, the job may have another size.
        return Verdict(warnings=(f"{verdict.refusal}; it waits, since {others}",))
    return verdict


def _names_pods(request: Request) -> bool:
    if isinstance(request, ScaleIn):
        return bool(request.spec.pod_names)
    if not isinstance(request, ScalePlan):
        return False
    entries = (*request.spec.remove_pods, *request.spec.migrate_pods)
    return any(entry.name is not None for entry in entries)


async def _pods_of(kube: Kube, job: ElasticJob) -> PodStore:
    selector = f"{names.LABEL_JOB_UID}={job.metadata.uid}"
    listed = await kube.list(PODS, job.metadata.namespace, label_selector=selector, as_type=_Pods)
    store = PodStore()
    for pod in listed.items:
        store.update(None, pod)
    return store


async def _others(kube: Kube, job: ElasticJob) -> str:
    """Return what comes before a new request, and may change the size; empty for nothing."""
    if is_being_scaled(job):
        return "the job is being scaled"
    for resource in (SCALE_PLANS, SCALE_INS, SCALE_OUTS):
        params = {"includeObject": "None", "limit": str(_MOST_ROWS)}
        path = resource.path(job.metadata.namespace)
        data = await kube.request("GET", path, params=params, accept=_TABLE)
        if why := _unfinished(msgspec.json.decode(data, type=_Table), job.metadata.name):
            return f"{resource.kind} {why}"
    return ""


def _unfinished(table: _Table, job: str) -> str:
    """Return which plan or request of the job has not ended."""
    if table.metadata.get("continue"):
        return f"objects of the namespace are more than {_MOST_ROWS}"
    columns = [column["name"] for column in table.column_definitions]
    for row in table.rows:
        cells = dict(zip(columns, row["cells"], strict=True))
        if cells["Job"] == job and cells["Phase"] not in _ENDED:
            return f"{cells['Name']} has not ended"
    return ""


async def _missing_secrets(kube: Kube, namespace: str, job: ElasticJob) -> list[str]:
    """Return warnings about secrets and accounts without which images cannot be pulled."""
    warnings: list[str] = []
    secrets: dict[str, str] = {}
    for role, spec in job.spec.replica_specs.items():
        pod = msgspec.convert(spec.template["spec"], _PullSecrets)
        field = f"spec.replicaSpecs.{role}.template.spec"
        account = pod.service_account_name or pod.service_account or "default"
        try:
            if not pod.image_pull_secrets:
                pod = await kube.get(SERVICE_ACCOUNTS, namespace, account, as_type=_PullSecrets)
        except NotFound:
            warnings.append(
                f"{field}.serviceAccountName: there is no ServiceAccount {account!r} in namespace "
                f"{namespace!r}, so that role {role} gets no pods"
            )
        for secret in pod.image_pull_secrets or ():
            if secret.name:  # one without a name is legal, and has no effect
                secrets.setdefault(secret.name, f"{field}.imagePullSecrets")
    for name, field in list(secrets.items())[:_MOST_CHECKED]:
        try:
            await kube.get_cached_metadata(SECRETS, namespace, name)
        except NotFound:
            warnings.append(
                f"{field}: there is no Secret {name!r} in namespace {namespace!r}, so that images "
                "that need it are not pulled"
            )
    return warnings
