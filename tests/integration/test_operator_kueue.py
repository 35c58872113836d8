"""Runs jobs that wait for quota of the real Kueue on the real API server; kubelets are fake."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Refused, TryLater
from elasticjob_kube.resources import (
    CRDS,
    ELASTIC_JOBS,
    ELASTIC_POOLS,
    KUEUE_CLUSTER_QUEUES,
    KUEUE_PRIORITIES,
    KUEUE_WORKLOADS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
)
from elasticjob_kube.session import Kube
from elasticjob_localcluster import cluster as clusters
from elasticjob_localcluster.cluster import Cluster
from elasticjob_localcluster.crds import apply_crds

from tests.support.deploy_tools import SYSTEM, Tools
from tests.support.fake_kubelet import end, kubelet
from tests.support.kueue import (
    QUEUE,
    install_definitions,
    is_served,
    manager,
    queue,
)
from tests.support.operator_process import (
    create,
    job,
    operator,
    phase,
    status_of,
    workers,
)
from tests.support.service_accounts import kubeconfig_of
from tests.support.wait import until
from tools.programs import find_helm
from tools.render_deploy import render

pytestmark = pytest.mark.thorough

REPOSITORY = Path(__file__).parents[2]
ELASTIC = {"ElasticJobsViaWorkloadSlices": True}
"""Today's default; off in Kueue 0.15."""
_OF_CLUSTERS = ("grant list and watch of nodes", "grant list and watch of priorityclasses")
"""The rights that an operator for one namespace lacks, and does without."""
NOT_ELASTIC = {"ElasticJobsViaWorkloadSlices": False}
IS_OLD = os.environ.get("KUEUE") == "0.15"
SIZE = "600m" if IS_OLD else "500m"
"""What a growth to five pods of 100m needs, while Kueue 0.15.2 counts the master a second time."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster with Kueue's definitions and ours."""
    with clusters.up(
        tmp_path_factory.mktemp("with-kueue"), control_plane_only=True
    ) as made_cluster:
        asyncio.run(apply_crds(made_cluster.kubeconfig, REPOSITORY / "crds"))
        asyncio.run(install_definitions(made_cluster.kubeconfig))
        yield made_cluster


@asynccontextmanager
async def running(
    cluster: Cluster,
    kube: Kube,
    namespace: str,
    tmp_path: Path,
    cpu: str,
    *,
    preempts: bool = True,
    **gates: bool,
) -> AsyncIterator[None]:
    """Run operator, kubelet and Kueue with a queue that has this much CPU.

    The operator has only its own rights.
    """
    log = tmp_path / "log"
    async with (
        installed(cluster, namespace),
        queue(kube, namespace, cpu, labels={"pool": "fast"}, preempts=preempts),
        manager(kube, cluster.kubeconfig, namespace, tmp_path / "kueue", **gates),
        operator(
            await kubeconfig_of(names.OPERATOR, cluster, kube, namespace, tmp_path),
            namespace,
            log,
            "--kueue",
        ),
        kubelet(kube, namespace),
    ):
        yield
        denied = [line for line in log.read_text().splitlines() if "system:serviceaccount" in line]
        assert [line for line in denied if not line.endswith(_OF_CLUSTERS)] == []


@asynccontextmanager
async def installed(cluster: Cluster, namespace: str) -> AsyncIterator[None]:
    """Install the rights of an operator for one namespace, with those for Kueue."""
    helm = await asyncio.to_thread(find_helm, os.environ)
    tools = Tools(cluster)
    values = ("scope=Namespace", "crds.install=false", "userRoles.create=false", "kueue=true")
    kinds = ("ServiceAccount", "Lease", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    rights = yaml.safe_dump_all(each for each in render(helm, *values) if each["kind"] in kinds)
    rights = rights.replace(SYSTEM, namespace)
    tools.kubectl("apply", "--server-side", "--namespace", namespace, "-f", "-", given=rights)
    try:
        yield
    finally:
        tools.kubectl("delete", "--namespace", namespace, "-f", "-", given=rights)


def queued(name: str, replicas: int, *, priority: str = "", **spec: Any) -> Json:
    """Return a job whose master and members request 100m CPU each."""
    body = job(
        name,
        replicas=replicas,
        master={"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}},
        **spec,
    )
    labels = {"kueue.x-k8s.io/queue-name": QUEUE}
    body["metadata"]["labels"] = labels | (
        {"kueue.x-k8s.io/priority-class": priority} if priority else {}
    )
    return body


async def workloads(kube: Kube, namespace: str) -> list[Json]:
    """Return the Workloads; none while the API server sets up their storage again.

    It does so when Kueue has put its certificate into a definition that was made anew.
    """
    try:
        return list((await kube.list(KUEUE_WORKLOADS, namespace))["items"])
    except TryLater:
        return []


async def settled(kube: Kube, namespace: str, size: int, name: str = "job") -> Json:
    return await until(
        f"{name} with {size} members",
        lambda: status_of(kube, namespace, ELASTIC_JOBS, name),
        lambda status: (
            status.get("phase") == "Running" and status.get("workers") == f"{size}/{size}"
        ),
    )


async def usage(kube: Kube, namespace: str) -> str:
    """Return the CPU of the queue that is in use, by Kueue's own account."""
    status = (await kube.get(KUEUE_CLUSTER_QUEUES, None, namespace)).get("status", {})
    found = [
        resource["total"]
        for flavor in status.get("flavorsReservation", [])
        for resource in flavor["resources"]
        if resource["name"] == "cpu"
    ]
    return str(found[0]) if found else "0"


async def test_a_job_starts_with_its_quota_and_releases_it_at_its_end(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with running(cluster, kube, namespace, tmp_path, "400m"):
        await kube.create(ELASTIC_JOBS, namespace, queued("first", 2))
        await settled(kube, namespace, 2, "first")
        for pod in (await kube.list(PODS, namespace))["items"]:
            assert pod["spec"]["nodeSelector"] == {"pool": "fast"}, "the flavour's nodes"
            assert "kueue.x-k8s.io/queue-name" not in pod["metadata"]["labels"], (
                "the quota is not counted twice"
            )
        await kube.create(ELASTIC_JOBS, namespace, queued("second", 2))
        status = await until(
            "Kueue's reason in the status",
            lambda: status_of(kube, namespace, ELASTIC_JOBS, "second"),
            lambda status: "insufficient" in status.get("message", ""),
        )
        assert status["phase"] == "Suspended"
        assert status["message"].startswith("waits for quota in queue team: ")
        assert await workers(kube, namespace, "second") == []
        for name in await workers(kube, namespace, "first"):
            await end(kube, namespace, name, 0)
        await phase(kube, namespace, ELASTIC_JOBS, "first", "Succeeded")
        await settled(kube, namespace, 2, "second")
        await until(
            "the quota of the second", lambda: usage(kube, namespace), lambda found: found == "300m"
        )


@pytest.mark.parametrize(
    ("cpu", "gates"), [(SIZE, ELASTIC), ("800m", NOT_ELASTIC)], ids=["elastic", "others"]
)
async def test_a_job_grows_with_its_quota_and_releases_quota_it_does_not_need(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path, cpu: str, gates: dict[str, bool]
) -> None:
    """A Kueue with elastic jobs needs quota for the difference only, any other one for both sizes
    for a moment.
    """
    async with running(cluster, kube, namespace, tmp_path, cpu, **gates):
        await kube.create(ELASTIC_JOBS, namespace, queued("job", 2))
        await settled(kube, namespace, 2)
        before = {pod["metadata"]["uid"] for pod in (await kube.list(PODS, namespace))["items"]}
        await create(kube, namespace, SCALE_OUTS, "more", jobName="job", count=2)
        await settled(kube, namespace, 4)
        after = {pod["metadata"]["uid"] for pod in (await kube.list(PODS, namespace))["items"]}
        assert before < after, "no pod was replaced"
        await until(
            "one Workload", lambda: workloads(kube, namespace), lambda found: len(found) == 1
        )
        await until(
            "the quota of both", lambda: usage(kube, namespace), lambda found: found == "500m"
        )
        await kube.patch(
            ELASTIC_JOBS, namespace, "job", {"spec": {"replicaSpecs": {"worker": {"replicas": 1}}}}
        )
        await settled(kube, namespace, 1)
        await until(
            "the quota of one", lambda: usage(kube, namespace), lambda found: found == "200m"
        )
        (workload,) = await workloads(kube, namespace)
        assert {each["name"]: each["count"] for each in workload["status"]["reclaimablePods"]} == {
            "master": 0,
            "worker": 3,
        }


async def test_a_job_starts_with_the_members_that_fit_and_gets_the_others_when_there_is_quota(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async def has(name: str, workers: str) -> None:
        await until(
            f"{name} with {workers} members",
            lambda: status_of(kube, namespace, ELASTIC_JOBS, name),
            lambda status: (status.get("phase"), status.get("workers")) == ("Running", workers),
        )

    async with running(cluster, kube, namespace, tmp_path, "500m", **ELASTIC):
        await kube.create(ELASTIC_JOBS, namespace, queued("first", 1))
        await settled(kube, namespace, 1, "first")
        await kube.create(
            ELASTIC_JOBS, namespace, queued("second", 4, runPolicy={"startPolicy": "AllReady"})
        )
        await kube.create(ELASTIC_JOBS, namespace, queued("third", 3))
        await has("third", "2/3")
        assert await workers(kube, namespace, "second") == []
        before = set(await workers(kube, namespace, "third"))
        for name in await workers(kube, namespace, "first"):
            await end(kube, namespace, name, 0)
        await settled(kube, namespace, 3, "third")
        assert before <= set(await workers(kube, namespace, "third"))
        await until(
            "the quota of all", lambda: usage(kube, namespace), lambda found: found == "400m"
        )


async def test_growth_without_quota_waits_and_is_cancelled_cleanly(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with running(cluster, kube, namespace, tmp_path, "400m", **ELASTIC):
        await kube.create(ELASTIC_JOBS, namespace, queued("job", 2))
        await settled(kube, namespace, 2)
        await create(
            kube,
            namespace,
            SCALE_PLANS,
            "more",
            jobName="job",
            replicaResourceSpecs={"worker": {"replicas": 6}},
        )
        status = await until(
            "the plan says what it waits for",
            lambda: status_of(kube, namespace, SCALE_PLANS, "more"),
            lambda status: "insufficient" in status.get("message", ""),
        )
        assert status["phase"] == "Pending"
        assert status["message"].startswith("waits for quota in queue team")
        assert len(await workloads(kube, namespace)) == 2
        await settled(kube, namespace, 2)
        await kube.delete(SCALE_PLANS, namespace, "more")
        await until(
            "one Workload", lambda: workloads(kube, namespace), lambda found: len(found) == 1
        )
        assert (await settled(kube, namespace, 2))["workers"] == "2/2"


@asynccontextmanager
async def high_priority(kube: Kube, name: str) -> AsyncIterator[None]:
    """Create a priority class of Kueue for the block."""
    kind = {"apiVersion": KUEUE_PRIORITIES.api_version, "kind": KUEUE_PRIORITIES.kind}
    await kube.create(KUEUE_PRIORITIES, None, {**kind, "metadata": {"name": name}, "value": 100})
    try:
        yield
    finally:
        await kube.delete(KUEUE_PRIORITIES, None, name)


def foreign(name: str, cpu: str, priority: str) -> Json:
    """Return a Workload of nobody that this operator knows, for a pod that needs this much CPU."""
    container = {"name": "run", "image": "run:1", "resources": {"requests": {"cpu": cpu}}}
    pod = {"containers": [container], "restartPolicy": "Never"}
    reference = {"group": KUEUE_PRIORITIES.group, "kind": KUEUE_PRIORITIES.kind, "name": priority}
    return {
        "apiVersion": KUEUE_WORKLOADS.api_version,
        "kind": KUEUE_WORKLOADS.kind,
        "metadata": {"name": name},
        "spec": {
            "queueName": QUEUE,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": pod}}],
            "priority": 100,
            "priorityClassRef": reference,
        },
    }


@pytest.mark.guarantee("queue-shares")
async def test_a_job_gives_members_for_a_workload_of_higher_priority_and_is_not_evicted(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async def pods_of(name: str) -> set[str]:
        pods = (await kube.list(PODS, namespace))["items"]
        of_job = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]
        return {pod["metadata"]["uid"] for pod in of_job}

    async with (
        running(cluster, kube, namespace, tmp_path, "700m", preempts=False, **ELASTIC),
        high_priority(kube, namespace),
    ):
        pool: Json = {"clusterQueue": namespace, "cooldownSeconds": 1}
        with pytest.raises(Refused, match="give capacity or clusterQueue, not both"):
            await create(kube, namespace, ELASTIC_POOLS, "both", **pool, capacity={"cpu": 1})
        for wrong in (pool, {"policy": "Fair"}):
            with pytest.raises(Refused, match="suspendLowerPriority is for policy Priority"):
                await create(
                    kube, namespace, ELASTIC_POOLS, "wrong", **wrong, suspendLowerPriority=True
                )
        await create(kube, namespace, ELASTIC_POOLS, "pool", **pool)
        await kube.create(ELASTIC_JOBS, namespace, queued("low", 4))
        await settled(kube, namespace, 4, "low")
        before = await pods_of("low")

        await kube.create(KUEUE_WORKLOADS, namespace, foreign("urgent", "400m", namespace))
        await settled(kube, namespace, 2, "low")
        await until("all quota in use", lambda: usage(kube, namespace), lambda it: it == "700m")
        after = await pods_of("low")
        assert after < before
        assert len(after) == 3, "the master and two members continue"
        status = await status_of(kube, namespace, ELASTIC_POOLS, "pool")
        assert status["lastAct"].startswith("low 2: ElasticPool pool is full, and Workload urgent")

        await kube.delete(KUEUE_WORKLOADS, namespace, "urgent")
        await settled(kube, namespace, 4, "low")
        assert after < await pods_of("low")
        await until("the quota of four", lambda: usage(kube, namespace), lambda it: it == "500m")
        # Otherwise it starts with one, and the old Kueue lacks quota for its growth.
        start = {"startPolicy": "AllReady"} if IS_OLD else {}
        high = queued("high", 3, priority=namespace, runPolicy=start)
        await kube.create(ELASTIC_JOBS, namespace, high)
        await settled(kube, namespace, 3, "high")
        await settled(kube, namespace, 2, "low")
        plans = (await kube.list(SCALE_PLANS, namespace))["items"]
        assert {plan["spec"]["source"] for plan in plans} == {"Pool"}
        assert {plan["status"]["phase"] for plan in plans} == {"Succeeded"}


@pytest.mark.guarantee("preempted-by-kueue")
async def test_a_preempted_job_ends_its_pods_and_continues_when_it_has_quota_again(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with (
        running(cluster, kube, namespace, tmp_path, "400m"),
        high_priority(kube, namespace),
    ):
        await kube.create(ELASTIC_JOBS, namespace, queued("low", 2))
        await settled(kube, namespace, 2, "low")
        await kube.create(ELASTIC_JOBS, namespace, queued("high", 2, priority=namespace))
        await phase(kube, namespace, ELASTIC_JOBS, "low", "Suspended")
        await settled(kube, namespace, 2, "high")
        assert await workers(kube, namespace, "low") == []
        for name in await workers(kube, namespace, "high"):
            await end(kube, namespace, name, 0)
        await phase(kube, namespace, ELASTIC_JOBS, "high", "Succeeded")
        await settled(kube, namespace, 2, "low")


@pytest.mark.guarantee("kueue-removed", "kueue-not-installed")
async def test_a_running_job_continues_without_kueue_and_regains_its_workload(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with running(cluster, kube, namespace, tmp_path, "500m"):
        await kube.create(ELASTIC_JOBS, namespace, queued("job", 3))
        await settled(kube, namespace, 3)
        before = {pod["metadata"]["uid"] for pod in (await kube.list(PODS, namespace))["items"]}
        await kube.delete(CRDS, None, f"{KUEUE_WORKLOADS.plural}.{KUEUE_WORKLOADS.group}")
        await until(
            "no Workload is served",
            lambda: is_served(kube, KUEUE_WORKLOADS),
            lambda served: not served,
        )
        await create(kube, namespace, SCALE_INS, "less", jobName="job", count=1)
        await settled(kube, namespace, 2)
        await kube.create(ELASTIC_JOBS, namespace, queued("new", 1))
        await phase(kube, namespace, ELASTIC_JOBS, "new", "Suspended")
        after = {pod["metadata"]["uid"] for pod in (await kube.list(PODS, namespace))["items"]}
        assert after < before, "no pod was replaced, and the new job has none"
        await install_definitions(cluster.kubeconfig)
        await settled(kube, namespace, 2)
        await settled(kube, namespace, 1, "new")
        await until(
            "both have a Workload",
            lambda: workloads(kube, namespace),
            lambda found: len(found) == 2,
        )

        def said() -> list[str]:
            return re.findall(
                "watch of workloads: the cluster (.+)", (tmp_path / "log").read_text()
            )

        await until(
            "the log has both",
            said,
            lambda found: found == ["does not serve them; trying again", "serves them again"],
        )
        # A time of the log may end with these digits.
        assert not re.search(r"(?<![,\d])404\b", (tmp_path / "log").read_text()), (
            "the jobs that wait for it are not in the log"
        )
