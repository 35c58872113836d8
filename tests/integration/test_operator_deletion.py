"""Deletes jobs: nothing of them remains, nor returns in a new job of the same name."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from pathlib import Path

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import TryLater
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLUME_CLAIMS,
)
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.chaos_proxy import chaos_proxy
from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import (
    create,
    job,
    manifest,
    operator,
    phase,
    run_job,
    status_of,
    workers,
)
from tests.support.wait import until

HOLD = "elasticjob-tests/hold"
OURS = (
    *(ELASTIC_JOBS, SCALE_PLANS, SCALE_INS, SCALE_OUTS),
    *(PODS, SERVICES, SECRETS, ROLES, ROLE_BINDINGS, CONFIG_MAPS, SERVICE_ACCOUNTS, VOLUME_CLAIMS),
)


@pytest.mark.guarantee("job-deleted-midway")
async def test_a_job_deleted_at_any_time_leaves_nothing(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"):
        async with kubelet(kube, namespace, agents=False):
            for name in ("draining", "executing", "waiting", "suspended"):
                await kube.create(ELASTIC_JOBS, namespace, job(name))
            for name in ("draining", "executing", "waiting", "suspended"):
                await phase(kube, namespace, ELASTIC_JOBS, name, "Running")
            # A member that is not ready drains nothing.
            both = partial(status_of, kube, namespace, ELASTIC_JOBS, "draining")
            await until("both workers are ready", both, lambda status: status["workers"] == "2/2")
            await _scale_in(kube, namespace, "draining", "draining")
            await phase(kube, namespace, SCALE_PLANS, "draining", "Draining")
        # From here on no new pod becomes ready.
        for name in ("executing", "waiting"):
            await create(kube, namespace, SCALE_OUTS, name, jobName=name, count=2)
            await phase(kube, namespace, SCALE_OUTS, name, "Scaling")
        await create(kube, namespace, SCALE_INS, "waits", jobName="waiting", count=1)
        await phase(kube, namespace, SCALE_INS, "waits", "Pending")
        await kube.patch(
            ELASTIC_JOBS, namespace, "suspended", {"spec": {"runPolicy": {"suspend": True}}}
        )
        await kube.create(ELASTIC_JOBS, namespace, job("new"))
        for name in ("draining", "executing", "waiting", "suspended", "new"):
            await kube.delete(ELASTIC_JOBS, namespace, name, propagation="Background")
        # The waiting request was never begun, so no job owns it. It ends with the message that its
        # job is gone.
        status = await phase(kube, namespace, SCALE_INS, "waits", "ScaleFailed")
        assert "there is no ElasticJob 'waiting'" in status["message"]
        await kube.delete(SCALE_INS, namespace, "waits")
        await until(
            "everything is deleted", lambda: _leftovers(kube, namespace), lambda left: not left
        )


@pytest.mark.guarantee("job-recreated-under-its-name")
async def test_a_job_recreated_at_once_under_its_name_has_nothing_of_the_old_one(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"):
        async with kubelet(kube, namespace, node=f"node-{namespace}"):
            await run_job(kube, namespace, job(replicas=3))
        await create(kube, namespace, SCALE_OUTS, "more", jobName="job", count=2)
        plan_name = (await phase(kube, namespace, SCALE_OUTS, "more", "Scaling"))["plan"]
        await phase(kube, namespace, SCALE_PLANS, plan_name, "Executing")
        await kube.patch(SCALE_PLANS, namespace, plan_name, {"metadata": {"finalizers": [HOLD]}})
        # The old pods have a node on which no kubelet ends them. They and the plan stay while the
        # new job begins.
        await kube.delete(ELASTIC_JOBS, namespace, "job", propagation="Background")
        new = await kube.create(ELASTIC_JOBS, namespace, job(replicas=2))
        async with kubelet(kube, namespace, node=f"other-{namespace}"):
            await until(
                "the new job runs",
                lambda: _runs(kube, namespace, "job", new["metadata"]["uid"], 2),
                itemgetter(0),
            )
            status = (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]
            assert (status["replicaStatuses"]["worker"]["desired"], status.get("currentPlan")) == (
                2,
                None,
            )
            (plan,) = (await kube.list(SCALE_PLANS, namespace))["items"]
            assert plan["metadata"]["name"] == plan_name
            await kube.patch(SCALE_PLANS, namespace, plan_name, {"metadata": {"finalizers": None}})


@pytest.mark.guarantee("volume-claims-of-members")
async def test_claims_outlive_pods_and_are_deleted_with_their_job(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async def claims() -> dict[str, str]:
        found = (await kube.list(VOLUME_CLAIMS, namespace))["items"]
        return {
            _name(each): each["metadata"]["uid"]
            for each in found
            if "deletionTimestamp" not in each["metadata"]
        }

    async def run(replicas: int) -> dict[str, str]:
        """Create the job, wait until it runs, and return its claims."""
        new = await kube.create(ELASTIC_JOBS, namespace, body)
        uid = new["metadata"]["uid"]
        await until("it runs", lambda: _runs(kube, namespace, "job", uid, replicas), itemgetter(0))
        return await claims()

    body = job(replicas=2)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body["spec"]["replicaSpecs"]["worker"]["volumeClaimTemplates"] = [
        {"metadata": {"name": "data"}, "spec": spec}
    ]
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        first = await run(2)
        assert sorted(first) == ["data-job-worker-0", "data-job-worker-1"]
        (volume, *_) = (await kube.get(PODS, namespace, "job-worker-1"))["spec"]["volumes"]
        assert volume == {
            "name": "data",
            "persistentVolumeClaim": {"claimName": "data-job-worker-1"},
        }
        await kube.delete(PODS, namespace, "job-worker-1")
        await until(
            "another pod of the member",
            lambda: workers(kube, namespace),
            lambda names: len(names) == 2,
        )
        assert await claims() == first
        await kube.delete(ELASTIC_JOBS, namespace, "job", propagation="Background")
        second = await run(2)
        assert sorted(second) == sorted(first)
        assert not set(first.values()) & set(second.values()), "nothing of the old job"
        await kube.delete(ELASTIC_JOBS, namespace, "job", propagation="Background")
        await until(
            "everything is deleted", lambda: _leftovers(kube, namespace), lambda left: not left
        )


@pytest.mark.guarantee("status-conflicts")
@pytest.mark.thorough
async def test_foreign_conditions_survive_every_status_that_the_operator_writes(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await kube.create(ELASTIC_JOBS, namespace, job())
        await create(kube, namespace, SCALE_OUTS, "more", jobName="job", count=3)
        now = "2026-01-01T00:00:00Z"
        audited = {
            "type": "Audited",
            "status": "True",
            "reason": "Clean",
            "message": "",
            "lastTransitionTime": now,
        }
        identity = {
            "apiVersion": names.API_VERSION,
            "kind": "ElasticJob",
            "metadata": {"name": "job"},
        }
        for message in ("once", "twice", "again"):  # also while the operator writes it
            body = {**identity, "status": {"conditions": [{**audited, "message": message}]}}
            await kube.apply(
                ELASTIC_JOBS,
                namespace,
                "job",
                body,
                subresource="status",
                field_manager="auditor",
            )
        await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")
        status = await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
        conditions = {condition["type"]: condition for condition in status["conditions"]}
        assert conditions["Audited"] == {**audited, "message": "again"}
        assert conditions["Running"]["status"] == "True"


@pytest.mark.guarantee("watch-cut-or-expired")
@pytest.mark.thorough
async def test_requests_deleted_while_no_watch_was_open_are_not_executed(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with (
        chaos_proxy(cluster, tmp_path) as proxy,
        operator(proxy.kubeconfig, namespace, tmp_path / "log"),
    ):
        async with kubelet(kube, namespace):
            for name in ("one", "two"):
                await kube.create(ELASTIC_JOBS, namespace, job(name))
                await phase(kube, namespace, ELASTIC_JOBS, name, "Running")
        await create(kube, namespace, SCALE_OUTS, "first", jobName="one", count=1)
        await phase(kube, namespace, SCALE_OUTS, "first", "Scaling")
        await create(kube, namespace, SCALE_OUTS, "second", jobName="one", count=2)
        await phase(kube, namespace, SCALE_OUTS, "second", "Pending")
        proxy.refuses_watches = True
        proxy.cut_watches()
        await kube.delete(SCALE_OUTS, namespace, "second")
        await kube.delete(ELASTIC_JOBS, namespace, "two", propagation="Background")
        new = await kube.create(ELASTIC_JOBS, namespace, job("two", replicas=3))
        # The versions that the watches knew have expired. Everything is listed again, and no list
        # shows a deletion.
        proxy.oldest = int(
            (await kube.list(ELASTIC_JOBS, namespace))["metadata"]["resourceVersion"]
        )
        proxy.refuses_watches = False
        async with kubelet(kube, namespace):
            await phase(kube, namespace, SCALE_OUTS, "first", "ScaleSucceeded", seconds=60)
            await until(
                "the new job runs",
                lambda: _runs(kube, namespace, "two", new["metadata"]["uid"], 3),
                itemgetter(0),
            )
            plans = [
                plan["spec"]["reason"]
                for plan in (await kube.list(SCALE_PLANS, namespace))["items"]
            ]
            assert plans == ["ScaleOut first"]
            assert len(await workers(kube, namespace, "one")) == 3


async def _scale_in(kube: Kube, namespace: str, job_name: str, name: str) -> None:
    body = manifest(
        SCALE_PLANS, name, jobName=job_name, replicaResourceSpecs={"worker": {"replicas": 1}}
    )
    await kube.create(SCALE_PLANS, namespace, body)


async def _runs(
    kube: Kube, namespace: str, name: str, uid: str, size: int
) -> tuple[bool, Json, list[str]]:
    """Return whether the job runs with exactly these workers, its status, and all its pods."""
    status: Json = (await kube.get(ELASTIC_JOBS, namespace, name)).get("status", {})
    selector = f"{names.LABEL_JOB_NAME}={name}"
    pods = (await kube.list(PODS, namespace, label_selector=selector))["items"]
    own = [pod for pod in pods if pod["metadata"]["labels"][names.LABEL_JOB_UID] == uid]
    settled = status.get("phase") == "Running" and status["workers"] == f"{size}/{size}"
    return settled and len(own) == len(pods) == size + 1, status, [_name(pod) for pod in pods]


async def _leftovers(kube: Kube, namespace: str) -> list[str]:
    try:
        left = [
            f"{kind.kind} {_name(item)}"
            for kind in OURS
            for item in (await kube.list(kind, namespace))["items"]
        ]
    except (
        TryLater
    ) as error:  # of a kind whose definition another test has changed: its storage is set up again
        return [f"no answer yet: {error}"]
    return [
        one for one in left if one not in ("ServiceAccount default", "ConfigMap kube-root-ca.crt")
    ]


def _name(item: Json) -> str:
    return str(item["metadata"]["name"])
