"""The operator's process against a real API server; kubelets and agents are played."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_cli.dev.cluster import Cluster
from elasticjob_kube.errors import KubeError, NotFound
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    LEASES,
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
from elasticjob_kube.session import Kube

from tests.integration.playing import end, kubelet

Json = dict[str, Any]
OPERATOR = Path(sys.executable).with_name("elasticjob-operator")


@asynccontextmanager
async def operator(cluster: Cluster, namespace: str, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the operator's process for one namespace."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(str(OPERATOR), "--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace),
            *("--master-image", "master:1"),
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(30):
            await process.wait()
        print(log.read_text())


def job(name: str = "job", *, replicas: int = 2, **spec: Any) -> Json:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    container = {"name": "train", "image": "train:1", "command": ["train"], "args": ["--fast"], "resources": resources}
    worker = {
        "replicas": replicas,
        "minReplicas": 1,
        "maxReplicas": 6,
        "template": {"spec": {"containers": [container]}},
    }
    return made(ELASTIC_JOBS, name, framework="jax", agent={"source": "Image"}, replicaSpecs={"worker": worker}, **spec)


def made(resource: Resource, name: str, **spec: Any) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


async def until(what: str, holds: Callable[[], Awaitable[Any]], seconds: float = 30) -> Any:
    """Wait until something is so."""
    last: Any = None
    try:
        async with asyncio.timeout(seconds):
            while not (last := await holds()):
                await asyncio.sleep(0.03)
    except TimeoutError:
        pytest.fail(f"not within {seconds} s: {what}; last: {last!r}")
    return last


class Told(dict[str, Any]):
    """A status that does not hold what is waited for; false, and shown when the wait is over."""

    def __bool__(self) -> bool:
        return False


async def phase(kube: Kube, namespace: str, resource: Resource, name: str, *wanted: str) -> Json:
    """Wait for one of these phases; return the status."""

    async def reached() -> Json:
        status = (await kube.get(resource, namespace, name)).get("status", {})
        return status if status.get("phase") in wanted else Told(status)

    status: Json = await until(f"{resource.kind} {name} {wanted}", reached)
    return status


async def workers(kube: Kube, namespace: str) -> list[str]:
    pods = await kube.list(PODS, namespace, label_selector=f"{names.LABEL_ROLE}=worker")
    return sorted(pod["metadata"]["name"] for pod in pods["items"])


async def test_a_job_becomes_master_and_workers_with_all_they_need(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster, namespace, tmp_path / "log"), kubelet(kube, namespace):
        created = await kube.create(ELASTIC_JOBS, namespace, job())
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
        assert await workers(kube, namespace) == ["job-worker-0", "job-worker-1"]

        async def address() -> str:
            status = (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]
            return str(status.get("masterAddress", ""))

        # The workers may be ready before the master is.
        assert (await until("the master's address", address)).endswith(f":{names.GRPC_PORT}")
        pod = await kube.get(PODS, namespace, "job-worker-1")
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owner["uid"] == created["metadata"]["uid"]
        container = pod["spec"]["containers"][0]
        assert container["args"] == ["train", "--fast"]
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("worker-1", "job")
        secret = await kube.get(SECRETS, namespace, "job-master")
        assert set(secret["data"]) == {names.SECRET_TOKEN, names.SECRET_CA, names.SECRET_CERT, names.SECRET_KEY}


async def test_every_way_to_change_the_size_works_and_the_spec_follows(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await kube.create(ELASTIC_JOBS, namespace, job())
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")

        await kube.create(SCALE_OUTS, namespace, made(SCALE_OUTS, "more", jobName="job", count=2))
        await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")
        assert (await workers(kube, namespace))[-1] == "job-worker-3"

        await kube.create(SCALE_INS, namespace, made(SCALE_INS, "less", jobName="job", podNames=["job-worker-1"]))
        told = await phase(kube, namespace, SCALE_INS, "less", "ScaleSucceeded")
        assert told["pods"] == ["job-worker-1"]
        plan = await kube.get(SCALE_PLANS, namespace, told["plan"])
        assert "forcedPods" not in plan["status"]

        scale = {"spec": {"replicas": 5}}
        await kube.patch(ELASTIC_JOBS, namespace, "job", scale, subresource="scale")
        await until("5 workers", lambda: _count(kube, namespace, 5))

        edit = {"spec": {"replicaSpecs": {"worker": {"replicas": 1}}}}
        await kube.patch(ELASTIC_JOBS, namespace, "job", edit)
        await until("1 worker", lambda: _count(kube, namespace, 1))

        resize = {"worker": {"replicas": 2, "resource": {"cpu": "200m"}}}
        body = made(SCALE_PLANS, "resize", jobName="job", replicaResourceSpecs=resize)
        await kube.create(SCALE_PLANS, namespace, body)
        told = await phase(kube, namespace, SCALE_PLANS, "resize", "Succeeded", "Failed", "PartiallySucceeded")
        assert told["phase"] == "Succeeded", told
        for name in await workers(kube, namespace):
            pod = await kube.get(PODS, namespace, name)
            assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "200m"
        spec = (await kube.get(ELASTIC_JOBS, namespace, "job"))["spec"]
        assert spec["replicaSpecs"]["worker"]["replicas"] == 2


async def test_a_request_for_an_unknown_job_or_pod_fails_with_the_reason(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await kube.create(ELASTIC_JOBS, namespace, job())
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
        for resource, name, spec, message in (
            (SCALE_INS, "a", {"jobName": "job", "podNames": ["stranger"]}, "spec.podNames[0]: 'stranger'"),
            (SCALE_INS, "b", {"jobName": "nobody", "count": 1}, "spec.jobName: there is no ElasticJob 'nobody'"),
            (SCALE_OUTS, "c", {"jobName": "nobody", "count": 1}, "spec.jobName: there is no ElasticJob 'nobody'"),
            (SCALE_OUTS, "d", {"jobName": "job", "count": 7}, "above maxReplicas 6"),
        ):
            await kube.create(resource, namespace, made(resource, name, **spec))
            told = await phase(kube, namespace, resource, name, "ScaleFailed", "ScaleSucceeded")
            assert message in told["message"]
        resize = {"worker": {"replicas": 3}}
        await kube.create(SCALE_PLANS, namespace, made(SCALE_PLANS, "e", jobName="nobody", replicaResourceSpecs=resize))
        told = await phase(kube, namespace, SCALE_PLANS, "e", "Failed", "Succeeded")
        assert "spec.jobName: there is no ElasticJob 'nobody'" in told["message"]
        assert await workers(kube, namespace) == ["job-worker-0", "job-worker-1"]


async def test_an_operator_killed_in_the_middle_of_a_plan_is_carried_on_by_the_next(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster, namespace, tmp_path / "first") as first:
        async with kubelet(kube, namespace):
            await kube.create(ELASTIC_JOBS, namespace, job())
            await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
        await kube.create(SCALE_OUTS, namespace, made(SCALE_OUTS, "more", jobName="job", count=2))
        await phase(kube, namespace, SCALE_OUTS, "more", "Scaling")
        first.send_signal(signal.SIGKILL)
        await first.wait()
    # Its lease runs out by itself in 15 s; taking it away is the same, sooner.
    await kube.delete(LEASES, namespace, names.OPERATOR)
    async with operator(cluster, namespace, tmp_path / "second"), kubelet(kube, namespace):
        await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")
        assert len(await workers(kube, namespace)) == 4


async def test_a_second_operator_waits_and_takes_over_when_the_first_ends(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with kubelet(kube, namespace), operator(cluster, namespace, tmp_path / "first") as first:
        await until("first leads", lambda: _holder(kube, namespace))
        holder = await _holder(kube, namespace)
        async with operator(cluster, namespace, tmp_path / "second") as second:
            await until("second waits", lambda: _says(tmp_path / "second", "waiting"))
            await kube.create(ELASTIC_JOBS, namespace, job())
            await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
            assert await _holder(kube, namespace) == holder
            first.terminate()
            assert await first.wait() == 0, (tmp_path / "first").read_text()
            await until("second leads", lambda: _says(tmp_path / "second", "leading as"))
            await kube.create(SCALE_OUTS, namespace, made(SCALE_OUTS, "more", jobName="job", count=1))
            await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")
            assert second.returncode is None


async def test_an_operator_that_has_lost_its_lease_ends_and_writes_nothing_more(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster, namespace, tmp_path / "log") as process:
        await until("it leads", lambda: _holder(kube, namespace))
        await until("it is at work", lambda: _says(tmp_path / "log", "leading as"))
        await kube.create(ELASTIC_JOBS, namespace, job())
        await until("master", lambda: _there(kube, PODS, namespace, "job-master"))
        await kube.patch(LEASES, namespace, names.OPERATOR, {"spec": {"holderIdentity": "another"}})
        async with asyncio.timeout(60):
            assert await process.wait() == 1
        assert await _says(tmp_path / "log", "another operator may be leading")
        assert not await _says(tmp_path / "log", "Traceback")
        assert await _holder(kube, namespace) == "another"


async def test_a_quota_that_refuses_pods_is_told_and_waited_for(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    quota = Resource("", "v1", "resourcequotas", "ResourceQuota")
    await kube.create(quota, namespace, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}})
    await until("quota counted", lambda: _quota_is_counted(kube, quota, namespace))
    async with operator(cluster, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await kube.create(ELASTIC_JOBS, namespace, job(replicas=3))

        async def told() -> Any:
            status = (await kube.get(ELASTIC_JOBS, namespace, "job")).get("status", {})
            return "exceeded quota" in status.get("message", "") or Told(status)

        await until("the status says why", told)
        await kube.delete(quota, namespace, "q")
        await until("all there", lambda: _count(kube, namespace, 3), 60)


async def test_lost_pods_and_the_master_are_replaced_under_new_names(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await kube.create(ELASTIC_JOBS, namespace, job())
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
        await kube.delete(PODS, namespace, "job-worker-0")
        await kube.delete(PODS, namespace, "job-master")
        await until("replaced", lambda: _names_are(kube, namespace, ["job-worker-0-1", "job-worker-1"]))
        await until("master", lambda: _there(kube, PODS, namespace, "job-master-1"))
        await end(kube, namespace, "job-worker-1", 1, message="out of luck")
        await until("restarted", lambda: _names_are(kube, namespace, ["job-worker-0-1", "job-worker-1-2"]))
        status = (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]
        assert status["replicaStatuses"]["worker"]["restartsByIndex"] == {"1": 1}
        await end(kube, namespace, "job-worker-0-1", 127, message="no such file: train")
        status = await phase(kube, namespace, ELASTIC_JOBS, "job", "Failed")
        assert "no such file: train" in status["message"]


async def test_a_foreign_pod_of_the_same_name_is_left_alone(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    stranger = {"metadata": {"name": "job-worker-0"}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}
    foreign = await kube.create(PODS, namespace, stranger)
    async with operator(cluster, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await kube.create(ELASTIC_JOBS, namespace, job())
        await until("both workers", lambda: _count(kube, namespace, 2))
        assert (await kube.get(PODS, namespace, "job-worker-0"))["metadata"]["uid"] == foreign["metadata"]["uid"]


async def test_deleting_the_job_leaves_nothing_behind(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await kube.create(ELASTIC_JOBS, namespace, job())
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
        await kube.create(SCALE_OUTS, namespace, made(SCALE_OUTS, "more", jobName="job", count=1))
        plan = made(SCALE_PLANS, "manual", jobName="job", replicaResourceSpecs={"worker": {"replicas": 2}})
        await kube.create(SCALE_PLANS, namespace, plan)
        await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")
        await phase(kube, namespace, SCALE_PLANS, "manual", "Succeeded")
        await kube.delete(ELASTIC_JOBS, namespace, "job", propagation="Background")
        kinds = (PODS, SERVICES, SECRETS, ROLES, ROLE_BINDINGS, SCALE_PLANS, SCALE_OUTS, CONFIG_MAPS, SERVICE_ACCOUNTS)

        async def gone() -> bool:
            left = [item["metadata"]["name"] for kind in kinds for item in (await kube.list(kind, namespace))["items"]]
            return sorted(left) == ["default", "kube-root-ca.crt"]

        await until("everything is gone", gone, 60)


async def test_at_rest_nothing_is_written(cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path) -> None:
    # Not pods: the scheduler writes to the ones it has no node for.
    kinds = (ELASTIC_JOBS, SCALE_PLANS, SCALE_OUTS, SERVICES, SECRETS, CONFIG_MAPS, ROLES)

    async def versions() -> list[str]:
        return [
            item["metadata"]["resourceVersion"]
            for kind in kinds
            for item in (await kube.list(kind, namespace))["items"]
        ]

    async with operator(cluster, namespace, tmp_path / "log"):
        async with kubelet(kube, namespace):
            await kube.create(ELASTIC_JOBS, namespace, job())
            await kube.create(SCALE_OUTS, namespace, made(SCALE_OUTS, "more", jobName="job", count=1))
            await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")
            await until("counted", lambda: _workers_are(kube, namespace, "3/3"))
        before, lease = await versions(), (await kube.get(LEASES, namespace, names.OPERATOR))["metadata"]

        async def renewed() -> bool:
            return (await kube.get(LEASES, namespace, names.OPERATOR))["metadata"] != lease

        await until("the operator is alive and renews its lease", renewed)
        assert await versions() == before
        assert await workers(kube, namespace) == ["job-worker-0", "job-worker-1", "job-worker-2"]


async def _count(kube: Kube, namespace: str, number: int) -> bool:
    return len(await workers(kube, namespace)) == number


async def _names_are(kube: Kube, namespace: str, expected: list[str]) -> bool:
    return await workers(kube, namespace) == expected


async def _workers_are(kube: Kube, namespace: str, expected: str) -> bool:
    status: Json = (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]
    return status["workers"] == expected and status["phase"] == "Running"


async def _holder(kube: Kube, namespace: str) -> str:
    try:
        return str((await kube.get(LEASES, namespace, names.OPERATOR))["spec"].get("holderIdentity", ""))
    except KubeError:
        return ""


async def _there(kube: Kube, resource: Resource, namespace: str, name: str) -> bool:
    try:
        await kube.get(resource, namespace, name)
    except NotFound:
        return False
    return True


async def _quota_is_counted(kube: Kube, quota: Resource, namespace: str) -> Any:
    return (await kube.get(quota, namespace, "q")).get("status", {}).get("used")


async def _says(log: Path, text: str) -> bool:
    return text in log.read_text()
