"""Checks on a real API server what the policy of deploy/created-by records.

That is who has created a job, and who has stopped it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_kube.errors import TryLater
from elasticjob_kube.resources import ELASTIC_JOBS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster.cluster import Cluster

from tests.support.service_accounts import kubeconfig_of
from tests.support.wait import until
from tools.generate import REPOSITORY

POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
FORGED = {names.ANNOTATION_CREATED_BY: "somebody", names.ANNOTATION_STOPPED_BY: "somebody"}


async def create(kube: Kube, namespace: str, name: str, **annotations: str) -> ElasticJob:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"framework": "custom", "replicaSpecs": {"worker": {"template": template}}}
    body = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
    kind = {"apiVersion": ELASTIC_JOBS.api_version, "kind": ELASTIC_JOBS.kind}
    return msgspec.convert(await kube.create(ELASTIC_JOBS, namespace, kind | body), ElasticJob)


async def annotate(kube: Kube, namespace: str, name: str, value: str | None) -> str:
    """Patch the annotation, and return who has created the job by what is stored then."""
    change = {"metadata": {"annotations": {names.ANNOTATION_CREATED_BY: value}}}
    found = await kube.patch(ELASTIC_JOBS, namespace, name, change)
    return msgspec.convert(found, ElasticJob).created_by


async def stop(kube: Kube, namespace: str, name: str) -> str | None:
    """Stop the job, in the name of another; return who has stopped it by what is stored then."""
    change = {"metadata": {"annotations": FORGED}, "spec": {"runPolicy": {"stop": True}}}
    found = await kube.patch(ELASTIC_JOBS, namespace, name, change)
    return stopped_by(msgspec.convert(found, ElasticJob))


def stopped_by(job: ElasticJob) -> str | None:
    return job.metadata.annotations.get(names.ANNOTATION_STOPPED_BY)


async def user_who_may_edit_jobs(
    cluster: Cluster, kube: Kube, namespace: str, folder: Path
) -> Path:
    """Create an account with rights to jobs; return its kubeconfig."""
    rule = {"apiGroups": [names.GROUP], "resources": ["elasticjobs"], "verbs": ["*"]}
    account: dict[str, Any] = {"metadata": {"name": "alice"}}
    subject = {"kind": "ServiceAccount", "name": "alice", "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "alice"}
    await kube.create(SERVICE_ACCOUNTS, namespace, account)
    await kube.create(ROLES, namespace, account | {"rules": [rule]})
    binding = account | {"roleRef": reference, "subjects": [subject]}
    await kube.create(ROLE_BINDINGS, namespace, binding)
    return await kubeconfig_of("alice", cluster, kube, namespace, folder)


async def test_who_has_created_or_stopped_a_job_is_recorded_and_nobody_can_change_it(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    await create(kube, namespace, "earlier")
    documents = (REPOSITORY / "deploy" / "created-by" / "policy.yaml").read_text()
    policy, binding = yaml.safe_load_all(documents)
    here: Json = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding["spec"]["matchResources"] = {"namespaceSelector": here}  # others use this cluster, too
    config = await user_who_may_edit_jobs(cluster, kube, namespace, tmp_path)
    await kube.request("POST", POLICIES, body=policy)
    try:
        await kube.request("POST", BINDINGS, body=binding)
        async with connect(user_agent="elasticjob-tests", kubeconfig=config) as alice:
            made: list[ElasticJob] = []

            async def created() -> str:
                try:
                    job = await create(alice, namespace, f"job-{len(made)}", **FORGED)
                except TryLater:  # the policies' types follow those of the cluster by some seconds
                    return ""
                made.append(job)
                return job.created_by

            user = f"system:serviceaccount:{namespace}:alice"
            await until("the policy acts", created, lambda by: by == user)
            assert await annotate(alice, namespace, made[-1].metadata.name, "bob") == user
            assert stopped_by(made[-1]) == "", "nobody has"
            assert await stop(alice, namespace, made[-1].metadata.name) == user
        assert await stop(kube, namespace, made[-1].metadata.name) == user, "alice was first"
        assert await annotate(kube, namespace, made[-1].metadata.name, "bob") == user
        assert await annotate(kube, namespace, made[-1].metadata.name, None) == user
        assert await annotate(kube, namespace, "earlier", "bob") == ""
    finally:
        for path in (POLICIES, BINDINGS):
            await kube.request("DELETE", f"{path}/elasticjob-created-by")
