"""Runs the operator with its own token only: it can do all its work, and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    CRDS,
    ELASTIC_JOBS,
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
    VOLUME_CLAIMS,
    Resource,
)
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster import cluster as clusters
from elasticjob_localcluster.cluster import Cluster

from tests.support.deploy_tools import DEPLOY, SYSTEM, Tools, manifests
from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import (
    OPERATOR,
    create,
    end_operator,
    exists,
    job,
    phase,
    run_job,
    workers,
)
from tests.support.service_accounts import kubeconfig_of, not_forbidden
from tests.support.wait import until
from tests.support.warm_process import start_warm

pytestmark = pytest.mark.thorough

_RBAC = ("rbac.authorization.k8s.io", "v1")
CLUSTER_ROLES = Resource(*_RBAC, "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    *_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CLAIM: Json = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
SECURITY = DEPLOY.parent / "docs" / "security.md"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster in which the operator is installed for all namespaces.

    Its Deployment has no node to run on.
    """
    with clusters.up(tmp_path_factory.mktemp("deployed"), control_plane_only=True) as made_cluster:
        Tools(made_cluster).kubectl("apply", "--server-side", "-k", str(DEPLOY / "base"))
        yield made_cluster


@pytest_asyncio.fixture
async def account(cluster: Cluster, kube: Kube, tmp_path: Path) -> Path:
    return await kubeconfig_of(names.OPERATOR, cluster, kube, SYSTEM, tmp_path)


@asynccontextmanager
async def operator(kubeconfig: Path, log: Path, *arguments: str) -> AsyncIterator[None]:
    """Run the operator as its Deployment does, without any admin credentials."""
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    with log.open("wb") as output:
        process = start_warm(
            OPERATOR, "--master-image=master:1", *arguments, output=output, env=environ
        )
    try:
        yield
    finally:
        await end_operator(process)
        print(log.read_text())


async def run_through_life(kube: Kube, namespace: str, log: Path) -> None:
    """Take a job from its creation through every kind of request to its end and deletion."""
    plan = {
        "replicaResourceSpecs": {"worker": {"replicas": 2, "resource": {"cpu": "200m"}}},
        "source": "Manual",
    }
    async with kubelet(kube, namespace):
        body = job(runPolicy={"ttlSecondsAfterFinished": 0})
        body["spec"]["replicaSpecs"]["worker"]["volumeClaimTemplates"] = [CLAIM]
        await run_job(kube, namespace, body)
        assert await exists(kube, VOLUME_CLAIMS, namespace, "data-job-worker-1")
        await create(kube, namespace, SCALE_OUTS, "more", jobName="job", count=2)
        await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")
        await create(kube, namespace, SCALE_INS, "less", jobName="job", count=1)
        await phase(kube, namespace, SCALE_INS, "less", "ScaleSucceeded")
        assert len(await workers(kube, namespace)) == 3
        scale = {"spec": {"replicas": 2}}
        await kube.patch(ELASTIC_JOBS, namespace, "job", scale, subresource="scale")

        async def two_are_left() -> bool:
            return len(await workers(kube, namespace)) == 2

        await until("two workers are left", two_are_left)
        await create(kube, namespace, SCALE_PLANS, "more-cpu", jobName="job", **plan)
        await phase(kube, namespace, SCALE_PLANS, "more-cpu", "Succeeded", seconds=60)
        # The operator repairs an account that a user changed, and likewise every other object of
        # the job.
        for resource in (ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS, SECRETS, CONFIG_MAPS):
            assert await exists(kube, resource, namespace, _name_of(resource))
    said = re.sub(r"(nodes|priorityclasses\.scheduling\.k8s\.io) is forbidden", "", log.read_text())
    assert "forbidden" not in said


def _name_of(resource: Resource) -> str:
    return names.state_config_map("job") if resource is CONFIG_MAPS else names.master_service("job")


@pytest.mark.guarantee("only-the-job-reaches-its-master")
async def test_the_operator_does_all_its_work_in_all_namespaces_with_its_own_account(
    kube: Kube, namespace: str, account: Path, tmp_path: Path
) -> None:
    log = tmp_path / "operator.log"
    async with operator(account, log, f"--lease-namespace={SYSTEM}"):
        await run_through_life(kube, namespace, log)
    assert "no notice of leaving nodes" not in log.read_text()


@pytest.mark.guarantee("only-the-job-reaches-its-master")
async def test_an_operator_for_one_namespace_works_there_and_nowhere_else(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    tools = Tools(cluster)
    rendered = tools.kubectl("kustomize", str(DEPLOY / "namespaced")).replace(SYSTEM, namespace)
    tools.kubectl("apply", "--server-side", "-f", "-", given=rendered)
    mine = await kubeconfig_of(names.OPERATOR, cluster, kube, namespace, tmp_path)
    log = tmp_path / "operator.log"
    async with operator(mine, log, f"--namespace={namespace}"):
        await run_through_life(kube, namespace, log)
    async with connect(user_agent="elasticjob-tests", kubeconfig=mine) as session:
        for resource in (ELASTIC_JOBS, PODS, SECRETS):
            for where in ("default", None):
                with pytest.raises(Refused, match="forbidden"):
                    await session.list(resource, where)
        with pytest.raises(Refused, match="forbidden"):
            await session.create(CONFIG_MAPS, "default", {"metadata": {"name": "x"}})
    tools.kubectl("delete", "-f", "-", given=rendered)
    assert not await exists(kube, LEASES, namespace, names.OPERATOR)


def _role(*rules: Json) -> Json:
    return {"metadata": {"name": "stolen"}, "rules": list(rules)}


def _binding(kind: str, name: str) -> Json:
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    role = {"apiGroup": _RBAC[0], "kind": kind, "name": name}
    return {"metadata": {"name": "stolen"}, "roleRef": role, "subjects": [subject]}


MUST_NOT: dict[str, tuple[str, str, Any]] = {
    "list the Secrets of a namespace": ("GET", SECRETS.path("default"), None),
    "list all Secrets": ("GET", SECRETS.path(), None),
    "replace a Secret": ("PUT", SECRETS.path("default", "x"), {}),
    "delete a Secret": ("DELETE", SECRETS.path("default", "x"), None),
    "run a command in a pod": ("POST", PODS.path("default", "x", "exec"), {}),
    "read the log of a pod": ("GET", PODS.path("default", "x", "log"), None),
    "change a pod": ("PATCH", PODS.path("default", "x"), {}),
    "write a pod's status": ("PATCH", PODS.path("default", "x", "status"), {}),
    "delete all pods at once": ("DELETE", PODS.path("default"), None),
    "list claims": ("GET", VOLUME_CLAIMS.path("default"), None),
    "change a claim": ("PATCH", VOLUME_CLAIMS.path("default", "x"), {}),
    "delete a claim": ("DELETE", VOLUME_CLAIMS.path("default", "x"), None),
    "evict a pod": ("POST", PODS.path("default", "x", "eviction"), {}),
    "delete a namespace": ("DELETE", NAMESPACES.path(None, "default"), None),
    "create a namespace": ("POST", NAMESPACES.path(), {"metadata": {"name": "x"}}),
    "list namespaces": ("GET", NAMESPACES.path(), None),
    "change a node": ("PATCH", NODES.path(None, "x"), {}),
    "delete a node": ("DELETE", NODES.path(None, "x"), None),
    "create a job": ("POST", ELASTIC_JOBS.path("default"), {}),
    "replace a job": ("PUT", ELASTIC_JOBS.path("default", "x"), {}),
    "delete all jobs at once": ("DELETE", ELASTIC_JOBS.path("default"), None),
    "change the definitions": ("PATCH", CRDS.path(None, "elasticjobs.elasticjob.dev"), {}),
    "read the definitions": ("GET", CRDS.path(), None),
    "create a Deployment": ("POST", DEPLOYMENTS.path("default"), {}),
    "change its own Deployment": ("PATCH", DEPLOYMENTS.path(SYSTEM, names.OPERATOR), {}),
    "take another Lease": ("PATCH", LEASES.path("kube-system", "kube-scheduler"), {}),
    "create a Lease": ("POST", LEASES.path(SYSTEM), {}),
    "read the state of a namespace": ("GET", CONFIG_MAPS.path("kube-system"), None),
    "delete a ConfigMap": ("DELETE", CONFIG_MAPS.path("default", "kube-root-ca.crt"), None),
    "delete a Role": ("DELETE", ROLES.path("default", "x"), None),
    "get a token of an account": (
        "POST",
        SERVICE_ACCOUNTS.path("default", "default", "token"),
        {"spec": {}},
    ),
    "create a ClusterRole": ("POST", CLUSTER_ROLES.path(), _role()),
    "create a ClusterRoleBinding": (
        "POST",
        CLUSTER_ROLE_BINDINGS.path(),
        _binding("ClusterRole", "view"),
    ),
    "give a right it does not hold": (
        "POST",
        ROLES.path("default"),
        _role({"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}),
    ),
    "give all rights": (
        "POST",
        ROLES.path("default"),
        _role({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
    ),
    "bind cluster-admin": (
        "POST",
        ROLE_BINDINGS.path("default"),
        _binding("ClusterRole", "cluster-admin"),
    ),
    "bind the built-in edit": (
        "POST",
        ROLE_BINDINGS.path("default"),
        _binding("ClusterRole", "edit"),
    ),
}


@pytest.mark.guarantee("only-the-job-reaches-its-master")
async def test_the_operator_may_do_nothing_else(account: Path) -> None:
    async with connect(user_agent="elasticjob-tests", kubeconfig=account) as session:
        done = await not_forbidden(
            session, ((what, *request) for what, request in MUST_NOT.items())
        )
    assert not done, "the operator can " + "; ".join(done)


@pytest.mark.parametrize(
    ("group", "may", "may_not"),
    [
        ("view", {"get", "list", "watch"}, {"create", "patch", "delete"}),
        ("edit", {"get", "list", "watch", "create", "patch", "update", "delete"}, set[str]()),
        ("admin", {"get", "list", "watch", "create", "patch", "update", "delete"}, set[str]()),
    ],
)
async def test_the_built_in_roles_reach_jobs(
    kube: Kube, namespace: str, group: str, may: set[str], may_not: set[str]
) -> None:
    subject = {"kind": "User", "name": "someone", "apiGroup": _RBAC[0]}
    binding = {**_binding("ClusterRole", group), "subjects": [subject]}
    await kube.create(ROLE_BINDINGS, namespace, binding)

    async def allowed(verb: str, resource: str) -> bool:
        attributes = {
            "namespace": namespace,
            "group": names.GROUP,
            "resource": resource,
            "verb": verb,
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        review = {"spec": {"user": "someone", "resourceAttributes": attributes}}
        return b'"allowed":true' in await kube.request("POST", path, body=review)

    for resource in ("elasticjobs", "scaleplans", "scaleins", "scaleouts"):
        for verb in sorted(may):

            async def granted(verb: str = verb, resource: str = resource) -> bool:
                return await allowed(verb, resource)

            await until(f"{group} may {verb} {resource}", granted)
        assert [verb for verb in sorted(may_not) if await allowed(verb, resource)] == []
        assert not await allowed("patch", f"{resource}/status")


def test_the_documentation_lists_the_operators_rights() -> None:
    assert _expanded(_role_of("base", "ClusterRole")["rules"]) == _documented()


def test_an_operator_for_one_namespace_has_the_same_rights_except_for_those_of_clusters() -> None:
    [role] = [
        each
        for each in manifests("namespaced")
        if each["metadata"]["name"] == names.OPERATOR and "rules" in each
    ]
    assert role["kind"] == "Role"
    of_clusters = {each for each in _documented() if each[0] in ("nodes", "priorityclasses")}
    assert _expanded(_role_of("namespaced", "Role")["rules"]) == _documented() - of_clusters


def _role_of(mode: str, kind: str) -> Json:
    found = {(each["kind"], each["metadata"]["name"]): each for each in manifests(mode)}
    return found[kind, names.OPERATOR]


def _expanded(rules: list[Json]) -> set[tuple[str, str, str]]:
    return {
        (resource, group or "core", verb)
        for rule in rules
        for resource in rule["resources"]
        for group in rule["apiGroups"]
        for verb in rule["verbs"]
    }


def _documented() -> set[tuple[str, str, str]]:
    table = (
        SECURITY.read_text()
        .partition("<!-- operator rights -->")[2]
        .partition("<!-- /operator rights -->")[0]
    )
    rows = [line.strip("|").split("|") for line in table.strip().splitlines()][2:]
    return {
        (resource, group, verb)
        for resources, groups, verbs, *_ in rows
        for resource in re.findall(r"`([^`]+)`", resources)
        for group in re.findall(r"`([^`]+)`", groups) or [groups.strip()]
        for verb in re.findall(r"`([^`]+)`", verbs)
    }
