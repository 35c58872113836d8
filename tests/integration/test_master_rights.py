"""Checks with a job master's own token what the API server lets it do."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import (
    ADMISSION_POLICIES,
    CONFIG_MAPS,
    CRDS,
    ELASTIC_JOBS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster.cluster import Cluster
from elasticjob_operator.ensure_infrastructure import ensure_infrastructure
from msgspec import structs

from tests.support.service_accounts import kubeconfig_of, not_forbidden
from tests.support.wait import until
from tools.policies import policies

JOB = "mine"
OTHER = "theirs"
DOCS = Path(__file__).parents[2] / "docs" / "security.md"
PROFILE = names.profile_config_map(JOB)
OTHERS_PROFILE = names.profile_config_map(OTHER)
VIEWED = names.query_config_map(JOB)
OTHERS_VIEWED = names.query_config_map(OTHER)
STATE = names.state_config_map(JOB)
OTHERS_STATE = names.state_config_map(OTHER)


@dataclass(frozen=True)
class Rights:
    """A session of the master, and its namespace and job."""

    kube: Kube
    namespace: str
    elsewhere: str
    uid: str


def _job(name: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "image": "i", "command": ["train"]}]}}
    spec = {
        "framework": "custom",
        "replicaSpecs": {"worker": {"replicas": 1, "template": template}},
        "autoscaling": {"enabled": True},
    }
    return {
        "apiVersion": ELASTIC_JOBS.api_version,
        "kind": ELASTIC_JOBS.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _plan(job: str, name: str) -> dict[str, Any]:
    spec = {"jobName": job, "source": "Auto", "replicaResourceSpecs": {"worker": {"replicas": 2}}}
    metadata = {"name": name}
    return {
        "apiVersion": SCALE_PLANS.api_version,
        "kind": SCALE_PLANS.kind,
        "metadata": metadata,
        "spec": spec,
    }


@pytest_asyncio.fixture
async def rights(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> AsyncIterator[Rights]:
    """Create two jobs with all their objects; return the first one's master."""
    made = {name: await kube.create(ELASTIC_JOBS, namespace, _job(name)) for name in (JOB, OTHER)}
    for job in made.values():
        await ensure_infrastructure(kube, msgspec.convert(job, ElasticJob))
        pod = {"name": f"{job['metadata']['name']}-worker-0"}
        await kube.create(
            PODS,
            namespace,
            {"metadata": pod, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        )
    await kube.create(SCALE_PLANS, namespace, _plan(OTHER, "theirs-1"))
    other = await kube.create(NAMESPACES, None, {"metadata": {"generateName": "elsewhere-"}})
    elsewhere = other["metadata"]["name"]
    mine = await kubeconfig_of(names.master_service(JOB), cluster, kube, namespace, tmp_path)
    try:
        async with connect(user_agent="elasticjob-tests", kubeconfig=mine) as session:
            yield Rights(session, namespace, elsewhere, made[JOB]["metadata"]["uid"])
    finally:
        await kube.delete(NAMESPACES, None, elsewhere)


async def test_a_master_can_do_what_it_needs(rights: Rights) -> None:
    kube = rights.kube
    namespace = rights.namespace
    assert (await kube.get(ELASTIC_JOBS, namespace, JOB))["metadata"]["uid"] == rights.uid
    only = {"field_selector": f"metadata.name={JOB}"}
    assert len((await kube.list(ELASTIC_JOBS, namespace, **only))["items"]) == 1
    progress = {"status": {"progress": {"step": 1}}}
    body = {
        "apiVersion": ELASTIC_JOBS.api_version,
        "kind": ELASTIC_JOBS.kind,
        "metadata": {"name": JOB},
        **progress,
    }
    await kube.apply(
        ELASTIC_JOBS,
        namespace,
        JOB,
        body,
        subresource="status",
        field_manager=names.MASTER,
    )
    stored = await kube.get(ELASTIC_JOBS, namespace, JOB)
    assert stored["status"]["progress"]["step"] == 1
    await kube.get(CONFIG_MAPS, namespace, STATE)
    await kube.patch(CONFIG_MAPS, namespace, STATE, {"binaryData": {"state": "AAAA"}})
    await kube.patch(CONFIG_MAPS, namespace, VIEWED, {"binaryData": {names.REPORT_KEY: "AAAA"}})
    await kube.get(CONFIG_MAPS, namespace, PROFILE)
    await kube.patch(CONFIG_MAPS, namespace, PROFILE, {"data": {names.PROFILE_KEY: ""}})
    await kube.create(SCALE_PLANS, namespace, _plan(JOB, "mine-auto-1"))
    plans = (await kube.list(SCALE_PLANS, namespace))["items"]
    assert {plan["metadata"]["name"] for plan in plans} == {"mine-auto-1", "theirs-1"}


@dataclass(frozen=True)
class Attempt:
    """A request that a master must not make; `elsewhere`: in another namespace."""

    what: str
    method: str
    resource: Resource
    name: str | None = None
    subresource: str | None = None
    elsewhere: bool = False
    everywhere: bool = False

    def request(self, rights: Rights) -> tuple[str, str, str, Any]:
        namespace: str | None = rights.namespace
        if self.elsewhere:
            namespace = rights.elsewhere
        if self.everywhere:
            namespace = None
        body = None
        if self.method in ("POST", "PATCH", "PUT"):
            body = {"metadata": {"name": self.name or "new"}}
        return (
            self.what,
            self.method,
            self.resource.path(namespace, self.name, self.subresource),
            body,
        )


ATTEMPTS = (
    Attempt("read another job", "GET", ELASTIC_JOBS, OTHER),
    Attempt("list the jobs of its namespace", "GET", ELASTIC_JOBS),
    Attempt("list all jobs", "GET", ELASTIC_JOBS, everywhere=True),
    Attempt("change its own spec", "PATCH", ELASTIC_JOBS, JOB),
    Attempt("replace its own job", "PUT", ELASTIC_JOBS, JOB),
    Attempt("scale by the subresource", "PATCH", ELASTIC_JOBS, JOB, "scale"),
    Attempt("replace its status", "PUT", ELASTIC_JOBS, JOB, "status"),
    Attempt("write another job's status", "PATCH", ELASTIC_JOBS, OTHER, "status"),
    Attempt("delete its job", "DELETE", ELASTIC_JOBS, JOB),
    Attempt("delete another job", "DELETE", ELASTIC_JOBS, OTHER),
    Attempt("delete all jobs", "DELETE", ELASTIC_JOBS),
    Attempt("create a job", "POST", ELASTIC_JOBS),
    Attempt("change a plan", "PATCH", SCALE_PLANS, "theirs-1"),
    Attempt("write a plan's status", "PATCH", SCALE_PLANS, "theirs-1", "status"),
    Attempt("delete a plan", "DELETE", SCALE_PLANS, "theirs-1"),
    Attempt("delete all plans", "DELETE", SCALE_PLANS),
    Attempt("create a plan in another namespace", "POST", SCALE_PLANS, elsewhere=True),
    Attempt("list plans of another namespace", "GET", SCALE_PLANS, elsewhere=True),
    Attempt("list all plans", "GET", SCALE_PLANS, everywhere=True),
    Attempt("create a ScaleOut", "POST", SCALE_OUTS),
    Attempt("list ScaleOuts", "GET", SCALE_OUTS),
    Attempt("create a ScaleIn", "POST", SCALE_INS),
    Attempt("list pods", "GET", PODS),
    Attempt("read a pod of its own job", "GET", PODS, "mine-worker-0"),
    Attempt("create a pod", "POST", PODS),
    Attempt("delete a pod", "DELETE", PODS, "mine-worker-0"),
    Attempt("change a pod", "PATCH", PODS, "mine-worker-0"),
    Attempt("resize a pod", "PATCH", PODS, "mine-worker-0", "resize"),
    Attempt("evict a pod", "POST", PODS, "mine-worker-0", "eviction"),
    Attempt("run a command in a pod", "POST", PODS, "mine-worker-0", "exec"),
    Attempt("read logs", "GET", PODS, "mine-worker-0", "log"),
    Attempt("read its own Secret", "GET", SECRETS, names.master_service(JOB)),
    Attempt("read another job's Secret", "GET", SECRETS, names.master_service(OTHER)),
    Attempt("list Secrets", "GET", SECRETS),
    Attempt("create a Secret", "POST", SECRETS),
    Attempt("read another job's state", "GET", CONFIG_MAPS, OTHERS_STATE),
    Attempt("write another job's state", "PATCH", CONFIG_MAPS, OTHERS_STATE),
    Attempt("read what viewers see", "GET", CONFIG_MAPS, VIEWED),
    Attempt("replace what viewers see", "PUT", CONFIG_MAPS, VIEWED),
    Attempt("write what viewers of another job see", "PATCH", CONFIG_MAPS, OTHERS_VIEWED),
    Attempt("read another profile", "GET", CONFIG_MAPS, OTHERS_PROFILE),
    Attempt("write another profile", "PATCH", CONFIG_MAPS, OTHERS_PROFILE),
    Attempt("replace its own profile", "PUT", CONFIG_MAPS, PROFILE),
    Attempt("delete its own profile", "DELETE", CONFIG_MAPS, PROFILE),
    Attempt("list ConfigMaps", "GET", CONFIG_MAPS),
    Attempt("create a ConfigMap", "POST", CONFIG_MAPS),
    Attempt("delete its own state", "DELETE", CONFIG_MAPS, STATE),
    Attempt(
        "read state of its name in another namespace", "GET", CONFIG_MAPS, STATE, elsewhere=True
    ),
    Attempt("change its rights", "PATCH", ROLES, names.master_service(JOB)),
    Attempt("give itself more rights", "POST", ROLE_BINDINGS),
    Attempt("read its rights", "GET", ROLES, names.master_service(JOB)),
    Attempt(
        "get a token of another account",
        "POST",
        SERVICE_ACCOUNTS,
        names.master_service(OTHER),
        "token",
    ),
    Attempt(
        "get another token of its own", "POST", SERVICE_ACCOUNTS, names.master_service(JOB), "token"
    ),
    Attempt("create an account", "POST", SERVICE_ACCOUNTS),
    Attempt("change a Service", "PATCH", SERVICES, names.master_service(OTHER)),
    Attempt("create a Service", "POST", SERVICES),
    Attempt("write events", "POST", EVENTS),
    Attempt("take the operator's lease", "POST", LEASES),
    Attempt("list nodes", "GET", NODES),
    Attempt("list namespaces", "GET", NAMESPACES),
    Attempt("create a namespace", "POST", NAMESPACES),
    Attempt("list definitions", "GET", CRDS),
)


@pytest.mark.guarantee("only-the-job-reaches-its-master")
async def test_a_master_can_do_nothing_else(rights: Rights) -> None:
    allowed = await not_forbidden(rights.kube, (attempt.request(rights) for attempt in ATTEMPTS))
    assert not allowed, "a master can " + "; ".join(allowed)


STATUS: dict[str, Any] = {
    "phase": "Running",
    "conditions": [
        {"type": "Running", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ],
    "observedGeneration": 1,
    "replicaStatuses": {"worker": {"desired": 1, "indices": "0"}},
    "formerRoles": {"highestIndex": 3, "incarnations": 2},
    "workers": "1/1",
    "selector": "a=b",
    "currentPlan": "plan",
    "master": {"incarnations": 1},
    "masterAddress": "10.0.0.1:50051",
    "restarts": 1,
    "uncountedRestarts": 1,
    "startTime": "2026-01-01T00:00:00Z",
    "completionTime": "2026-01-01T00:00:00Z",
    "retries": 1,
    "retryTime": "2026-01-01T00:00:00Z",
    "message": "fine",
    "lastFailure": "worker 0 failed",
    "failures": [{"role": "worker", "index": 0}],
}
"""A value for every field that is not the master's."""


async def enforced(rights: Rights) -> None:
    """Wait until the API server enforces both policies, some seconds after their creation."""

    session = rights.kube
    where = rights.namespace

    async def are_refused() -> bool:
        status = {"status": {"message": "?"}}
        plan = _plan(OTHER, f"stray-{next(_numbers)}")
        for attempt in (
            partial(session.patch, ELASTIC_JOBS, where, JOB, status, subresource="status"),
            partial(session.create, SCALE_PLANS, where, plan),
        ):
            try:
                await attempt()
            except Refused:
                continue
            return False
        return True

    await until("the policies are enforced", are_refused)


_numbers = itertools.count()


async def refusal(of: Awaitable[Any]) -> str:
    """Return the reason why a request is rejected."""
    with pytest.raises(Refused) as refused:
        await of
    assert refused.value.status in (403, 422)
    return str(refused.value)


@pytest.mark.guarantee("foreign-status-writes")
async def test_a_master_changes_only_the_progress_of_a_status(rights: Rights, kube: Kube) -> None:
    assert {*STATUS, "progress"} == {
        field.encode_name for field in structs.fields(ElasticJobStatus)
    }
    await enforced(rights)

    async def written(session: Kube, status: Any) -> Any:
        return await session.patch(
            ELASTIC_JOBS, rights.namespace, JOB, {"status": status}, subresource="status"
        )

    for field, value in STATUS.items():  # of a status that does not have it
        assert f"status.{field}: a master may change nothing" in await refusal(
            written(rights.kube, {field: value})
        )
    await written(kube, STATUS)
    changed = {
        **STATUS,
        "phase": "Failed",
        "restarts": 2,
        "uncountedRestarts": 2,
        "observedGeneration": 2,
        "retries": 2,
    }
    changed |= {
        key: f"{value}x"
        for key, value in STATUS.items()
        if isinstance(value, str) and key not in _CLOSED
    }
    changed |= {
        "replicaStatuses": {"worker": {"desired": 1, "indices": "0-999"}},
        "master": {"incarnations": 2},
    }
    changed |= dict.fromkeys(("startTime", "completionTime", "retryTime"), "2027-01-01T00:00:00Z")
    changed["conditions"] = changed["failures"] = []
    changed["formerRoles"] = {"highestIndex": 4}
    for field in STATUS:
        assert changed[field] != STATUS[field]
        for other in (changed[field], None):
            assert f"status.{field}: a master may" in await refusal(
                written(rights.kube, {field: other})
            )
    assert (await written(rights.kube, {"progress": {"step": 7}}))["status"] == {
        **STATUS,
        "progress": {"step": 7},
    }
    assert "message" in await refusal(
        written(rights.kube, {"progress": {"step": 8}, "message": "all is well"})
    )
    assert "progress" not in (await written(rights.kube, {"progress": None}))["status"]


_CLOSED = ("phase", "startTime", "completionTime")


@pytest.mark.guarantee("foreign-status-writes")
async def test_a_master_plans_only_for_its_own_job_and_under_its_own_name(
    rights: Rights, kube: Kube
) -> None:
    await enforced(rights)
    own = _plan(JOB, "mine-auto-1")
    owner = {"apiVersion": names.API_VERSION, "kind": "ElasticJob", "name": JOB, "uid": rights.uid}
    scale_out = {
        "apiVersion": names.API_VERSION,
        "kind": "ScaleOut",
        "name": "x",
        "uid": rights.uid,
    }
    labels = {names.LABEL_JOB_NAME: JOB, names.LABEL_JOB_UID: rights.uid}

    def changed(*, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
        return {
            **own,
            "metadata": {**own["metadata"], **metadata},
            "spec": {**own["spec"], **(spec or {})},
        }

    for body, why in (
        (
            _plan(OTHER, "theirs-auto-1"),
            "spec.jobName: a master may ask for plans of its own job only",
        ),
        (changed(spec={"source": "Manual"}), "spec.source"),
        (changed(spec={"source": "ScaleOut"}), "spec.source"),
        (changed(name="mine-spec-2"), "metadata.name"),
        (changed(labels={names.LABEL_JOB_NAME: OTHER}), "metadata.labels"),
        (changed(labels={"team": "a"}), "metadata.labels"),
        (changed(ownerReferences=[scale_out]), "metadata.ownerReferences"),
        (changed(ownerReferences=[{**owner, "name": OTHER}]), "metadata.ownerReferences"),
        (
            changed(ownerReferences=[{**owner, "uid": "another"}], labels=labels),
            "metadata.ownerReferences",
        ),
        (changed(finalizers=["a.example/b"]), "metadata.finalizers"),
    ):
        assert why in await refusal(rights.kube.create(SCALE_PLANS, rights.namespace, body)), body
    await rights.kube.create(
        SCALE_PLANS, rights.namespace, changed(labels=labels, ownerReferences=[owner])
    )
    await kube.create(SCALE_PLANS, rights.namespace, _plan(OTHER, "by-a-user"))


async def test_the_api_server_checks_the_policies_without_a_warning(
    rights: Rights, kube: Kube
) -> None:
    for name in policies():
        status = (await kube.get(ADMISSION_POLICIES, None, name)).get("status", {})
        assert not status.get("typeChecking", {}).get("expressionWarnings"), name


@pytest.mark.guarantee("only-the-job-reaches-its-master")
async def test_the_api_server_lists_only_documented_rights(
    rights: Rights,
) -> None:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": rights.namespace},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    review = json.loads(await rights.kube.request("POST", path, body=body))["status"]
    assert not review.get("evaluationError")
    mine = {
        _row(rule) for rule in review["resourceRules"] if rule["apiGroups"][0] not in _EVERYBODYS
    }
    assert mine == _documented()


_EVERYBODYS = ("authorization.k8s.io", "authentication.k8s.io", "certificates.k8s.io")
"""API groups of rules that every account has: to ask for its own rights and identity, and, since
Kubernetes 1.37, to read the certificates of authorities that the cluster publishes.
"""


def _row(rule: dict[str, Any]) -> tuple[str, ...]:
    [group] = rule["apiGroups"]
    [resource] = rule["resources"]
    only = ", ".join(rule.get("resourceNames", ["all of the namespace"])).replace(JOB, "<job>")
    return resource, group or "core", only, ", ".join(sorted(rule["verbs"]))


def _documented() -> set[tuple[str, ...]]:
    """Return the rows of the table of rights."""
    table = DOCS.read_text().partition("<!-- rights -->")[2].partition("<!-- /rights -->")[0]
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in table.strip().splitlines()
    ]
    plain = {tuple(re.sub("`", "", cell) for cell in row) for row in rows[2:]}
    return {(resource, group, only, verbs) for resource, group, only, verbs, *_ in plain}
