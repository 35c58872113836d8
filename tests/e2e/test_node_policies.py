"""Runs jobs in namespaces with pod security, quotas, default limits, or network policies."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from elasticjob_api import names
from elasticjob_api.meta import Json

from tests.support.e2e import images
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.real_node import counting_job, limit_by_default, start_job, wait_for_progress
from tests.support.e2e.sandbox import Sandbox

pytestmark = pytest.mark.real_node
TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"
SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


# --- pod security


@pytest.mark.guarantee("restricted-namespaces")
def test_a_namespace_with_restricted_pod_security_accepts_all_pods_of_a_job(
    sandbox: Sandbox,
) -> None:
    restrict(sandbox)
    job = counting_job("strict", replicas=2, steps=60, securityContext=RESTRICTED)
    job["spec"]["agent"] = {"source": "InitContainer"}
    sandbox.apply(job)
    KubectlUser(sandbox, "strict").wait("ej/strict", ".status.phase", "Succeeded")


@pytest.mark.guarantee("api-server-refuses-for-now")
def test_a_template_that_violates_restricted_pod_security_is_reported(
    sandbox: Sandbox,
) -> None:
    restrict(sandbox)
    sandbox.apply(counting_job("lax"))
    user = KubectlUser(sandbox, "lax")
    user.until(
        "the refusal in the job's message",
        lambda: "violates PodSecurity" in user.status().get("message", ""),
    )
    assert user.pods() == {}


def restrict(sandbox: Sandbox) -> None:
    """Let the namespace accept only pods of the restricted level."""
    sandbox.kubectl(
        "label", "namespace", sandbox.namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    refused = sandbox.kubectl("run", "lax", f"--image={images.PLAIN}", check=False)
    assert "violates PodSecurity" in refused, (
        "the cluster does not enforce pod security: this would show nothing"
    )


# --- a quota


@pytest.mark.guarantee("api-server-refuses-for-now")
def test_a_quota_exhausted_by_a_scale_out_ends_the_plan_and_the_job_continues(
    sandbox: Sandbox,
) -> None:
    user, before = start_job(sandbox, counting_job("counted", replicas=2))
    allow(user, 4)
    user.request(
        "ScalePlan",
        "undone",
        createPods=[{"role": "worker"}] * 3,
        timeoutSeconds=8,
        onTimeout="Rollback",
    )
    assert "2 of 3 new members are not ready" in partly_executed(user, "undone")
    assert (
        "exceeded quota: few, requested: pods=1, used: pods=4, limited: pods=4"
        in partly_executed(user, "undone")
    )
    user.until("only the created one", lambda: user.at_rest(3))
    allow(user, 5)
    user.request("ScalePlan", "kept", createPods=[{"role": "worker"}] * 2, timeoutSeconds=8)
    assert "1 of 2 new members are not ready" in partly_executed(user, "kept")
    assert (
        "exceeded quota: few, requested: pods=1, used: pods=5, limited: pods=5"
        in partly_executed(user, "kept")
    )
    user.wait("ej/counted", ".status.workers", "4/5")
    user.until(
        "the reason in the job's message", lambda: "exceeded quota: few" in user.status()["message"]
    )
    wait_for_progress(user)
    user.kubectl("delete", "quota", "few")
    user.until("the other one, as soon as there is room", lambda: user.at_rest(5))
    assert before.items() < user.pods().items(), "a worker was replaced"


def allow(user: KubectlUser, pods: int) -> None:
    """Set the number of pods that the namespace may have; all but one of them exist."""
    hard = {"hard": {"pods": str(pods)}}
    user.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": hard}
    )
    counted = {"hard": {"pods": str(pods)}, "used": {"pods": str(pods - 1)}}
    user.until("the quota is counted", lambda: user.status("quota/few") == counted)


def partly_executed(user: KubectlUser, plan: str) -> str:
    """Wait until a plan has ended partially executed; return its message."""
    user.wait(f"sp/{plan}", ".status.phase", "PartiallySucceeded")
    message: str = user.status(f"sp/{plan}")["message"]
    return message


# --- default limits


@pytest.mark.guarantee("no-writes-at-rest")
def test_defaults_of_a_limit_range_trigger_no_change(sandbox: Sandbox) -> None:
    limits = {"cpu": "500m", "memory": "256Mi"}
    limit_by_default(sandbox, defaultRequest={"cpu": "20m", "memory": "128Mi"}, default=limits)
    user, before = start_job(sandbox, counting_job("plain", replicas=2, resources={}))
    assert {name: resources_of(user, name)["limits"] for name in before} == dict.fromkeys(
        before, limits
    )
    stays_at_rest(user)
    # A plan changes only the fields it names. A default limit does not restrict it.
    wanted = {"cpu": "600m"}
    plan = user.create("ScalePlan", "faster", replicaResourceSpecs={"worker": {"resource": wanted}})
    assert sorted(plan["resizedPods"]) == sorted(before)
    # A replacement also has the default, which again is not a difference.
    deleted = min(before)
    user.kubectl("delete", "pod", deleted)
    user.until("a successor", lambda: user.at_rest(2) and deleted not in user.pods())
    (new,) = set(user.pods()) - set(before)
    assert {resources_of(user, new)[kind]["cpu"] for kind in ("requests", "limits")} == {"600m"}
    stays_at_rest(user)


def stays_at_rest(user: KubectlUser) -> None:
    """While the job trains, only its progress is written."""

    def written() -> Json:
        job = user.get(f"ej/{user.job}")
        job["status"].pop("progress")
        pods = {name: user.get(f"pod/{name}")["spec"] for name in user.pods()}
        return {
            "status": job["status"],
            "pods": pods,
            "plans": [plan["status"] for plan in user.items("sp")],
        }

    before = written()
    for _ in range(2):  # each change of the job makes the operator reconcile the whole job
        wait_for_progress(user)
    assert written() == before


def resources_of(user: KubectlUser, pod: str) -> Json:
    """Return the resources of a pod's container."""
    resources: Json = user.get(f"pod/{pod}")["spec"]["containers"][0]["resources"]
    return resources


# --- network policies


@pytest.mark.guarantee("restricted-namespaces")
def test_a_job_runs_under_default_deny_with_the_documented_policies(
    sandbox: Sandbox,
) -> None:
    """Only a network plugin that enforces policies shows that they are sufficient.

    Every plugin shows the rest.
    """
    deny = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    sandbox.apply(policy("nothing", deny), *documented("guarded"))
    sandbox.apply(counting_job("guarded", replicas=2, steps=100))
    KubectlUser(sandbox, "guarded").wait("ej/guarded", ".status.phase", "Succeeded")


def policy(name: str, spec: Json) -> Json:
    """Return a NetworkPolicy."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def documented(job: str) -> list[Json]:
    """Return the policies of docs/security.md, for a job of another name."""
    blocks = SECURITY.read_text().split("```yaml")[1:]
    text = "\n---\n".join(
        dedent(block.split("```")[0]) for block in blocks if "kind: NetworkPolicy" in block
    )
    found = list(yaml.safe_load_all(text.replace("digits", job)))
    assert {one["metadata"]["name"] for one in found} >= {
        "scrape-elasticjob-masters",
        f"{job}-inside",
        f"{job}-plans",
    }
    return found


# --- tokens


@pytest.mark.guarantee("only-the-job-reaches-its-master")
def test_only_the_master_has_a_token_and_it_ends_with_the_masters_pod(
    sandbox: Sandbox,
) -> None:
    user, workers = start_job(sandbox, counting_job("owner", replicas=1))
    master = names.master_service("owner")
    claims = token(user, master)
    assert claims["sub"] == f"system:serviceaccount:{sandbox.namespace}:{master}"
    assert claims["kubernetes.io"]["pod"]["uid"] == user.get(f"pod/{master}")["metadata"]["uid"]
    assert claims["exp"] - claims["iat"] <= 366 * 24 * 3600
    (sources,) = [
        volume["projected"]["sources"]
        for volume in user.get(f"pod/{master}")["spec"]["volumes"]
        if "projected" in volume
    ]
    assert sources[0]["serviceAccountToken"]["expirationSeconds"] <= 3607
    for name in workers:
        spec = user.get(f"pod/{name}")["spec"]
        assert [volume for volume in spec.get("volumes", []) if "projected" in volume] == []
        assert "No such file" in user.kubectl("exec", name, "--", "ls", TOKENS, check=False)
    # The master writes with this token, and its writes have arrived.
    writers = {entry["manager"] for entry in fields(user)}
    assert names.MASTER in writers


def token(user: KubectlUser, pod: str) -> Json:
    """Return the claims of a pod's token."""
    payload = user.kubectl("exec", pod, "--", "cat", f"{TOKENS}/token").split(".")[1]
    found: Json = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found


def fields(user: KubectlUser) -> list[Json]:
    """Return the writers of the job."""
    metadata = json.loads(
        user.kubectl("get", f"ej/{user.job}", "-o", "json", "--show-managed-fields")
    )["metadata"]
    found: list[Json] = metadata["managedFields"]
    return found
