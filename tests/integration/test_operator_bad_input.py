"""Checks that impossible requests are rejected as docs/bad-input.md says."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    NAMESPACES,
    NODES,
    PODS,
    SCALE_PLANS,
    WEBHOOKS,
    Resource,
)
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster.cluster import Cluster
from elasticjob_localcluster.controlplane.ports import free_port

from tests.support import admission
from tests.support.bad_input import CASES, FINISHED, RUNNING, SUSPENDED, Bad
from tests.support.fake_kubelet import end, kubelet
from tests.support.operator_process import OPERATOR, create, job, manifest, phase, workers
from tests.support.thorough import some_of
from tests.support.wait import until
from tests.support.warm_process import start_warm

DOCUMENT = Path(__file__).parents[2] / "docs" / "bad-input.md"
HOLD = "elasticjob-tests/hold"
JUDGED = {"elasticjob-tests/judged": "yes"}
DENIED = 'admission webhook "admission.elasticjob.dev" denied the request: '


@pytest.fixture(scope="module")
def prepared_namespace(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run an operator with a running, a suspended and a finished job, and a foreign pod."""
    namespace = "bad-input"  # messages contain it
    log = tmp_path_factory.mktemp("bad-input") / "log"
    command = [OPERATOR, "--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace]
    port = free_port()
    command += ["--master-image", "master:1", *admission.arguments(namespace, port)]
    asyncio.run(_with_kube(cluster, _make_namespace, namespace))
    with log.open("wb") as output:
        operator = start_warm(*command, output=output, env=dict(os.environ))
    try:
        asyncio.run(_with_kube(cluster, partial(_configure, port), namespace))
        asyncio.run(_with_kube(cluster, _prepare, namespace))
        yield namespace
    finally:
        operator.terminate()
        operator.join()
        asyncio.run(_with_kube(cluster, _tear_down, namespace))
        print(log.read_text())


@pytest.mark.guarantee(
    "refusals-name-the-bound",
    "bad-input-is-refused",
    "overlapping-requests",
)
@pytest.mark.parametrize("bad", some_of((pytest.param(bad, id=bad.id) for bad in CASES), every=3))
async def test_bad_input_is_rejected_with_field_value_and_bound_and_changes_nothing(
    kube: Kube, prepared_namespace: str, bad: Bad
) -> None:
    before = await _everything(kube, prepared_namespace)
    if bad.resource is ELASTIC_JOBS:
        result, message = await _edit(kube, prepared_namespace, bad)
    else:
        result, message = await _request(kube, prepared_namespace, bad)
    assert result in ("refused", "ScaleFailed", "Failed"), message
    assert [part for part in bad.names if part not in message] == [], message
    assert await _everything(kube, prepared_namespace) == before
    row = _row(bad, result, message)
    assert row in DOCUMENT.read_text().splitlines(), f"docs/bad-input.md lacks the row\n{row}"


def test_the_document_has_exactly_one_row_for_every_bad_input() -> None:
    rows = [
        line
        for line in DOCUMENT.read_text().splitlines()
        if line.startswith(("| Scale", "| Elastic"))
    ]
    assert [row.split(" | ")[:2] for row in rows] == [
        _row(bad, "", "").split(" | ")[:2] for bad in CASES
    ]


async def _request(kube: Kube, namespace: str, bad: Bad) -> tuple[str, str]:
    """Create a request; return its outcome and the reason, which the webhook has told before."""
    told = await _told_at_the_door(kube, namespace, bad)
    try:
        await create(kube, namespace, bad.resource, "bad", **bad.spec)
    except Refused as refusal:
        return "refused", refusal.message
    ends = (
        "ScaleFailed",
        "ScaleSucceeded",
        "Failed",
        "Succeeded",
        "PartiallySucceeded",
        "Cancelled",
    )
    status = await phase(kube, namespace, bad.resource, "bad", *ends)
    assert told == f"{DENIED}{status['message']}"
    await kube.delete(bad.resource, namespace, "bad")
    return status["phase"], status["message"]


async def _told_at_the_door(kube: Kube, namespace: str, bad: Bad) -> str:
    """Return why the API server refuses a request that the webhook is asked about."""
    body = manifest(bad.resource, "bad", **bad.spec)
    body["metadata"]["labels"] = JUDGED
    with pytest.raises(Refused) as refusal:
        await kube.create(bad.resource, namespace, body)
    return refusal.value.message


async def _edit(kube: Kube, namespace: str, bad: Bad) -> tuple[str, str]:
    """Edit the running job; return the outcome and the reason. Undo an edit that was stored."""
    before = await kube.get(ELASTIC_JOBS, namespace, RUNNING)
    old = before["spec"]["replicaSpecs"]["worker"]["replicas"]
    try:
        edited = await kube.patch(
            ELASTIC_JOBS, namespace, RUNNING, {"spec": bad.spec}, subresource=bad.subresource
        )
    except Refused as refusal:
        return "refused", refusal.message
    plan = f"{RUNNING}-spec-{edited['metadata']['generation']}"
    await until("a plan for the edit", lambda: _is_there(kube, SCALE_PLANS, namespace, plan))
    status = await phase(
        kube, namespace, SCALE_PLANS, plan, "Failed", "Succeeded", "PartiallySucceeded"
    )
    undone = {"spec": {"replicaSpecs": {"worker": {"replicas": old}}}}
    await kube.patch(ELASTIC_JOBS, namespace, RUNNING, undone)
    return status["phase"], status["message"]


async def _everything(kube: Kube, namespace: str) -> Json:
    """Return the state that a bad request must not change: jobs' specs and sizes, and pods."""
    jobs = (await kube.list(ELASTIC_JOBS, namespace))["items"]
    pods = (await kube.list(PODS, namespace))["items"]
    sizes = ("desired", "indices", "resources", "resourcesByIndex")
    return {
        "jobs": {
            item["metadata"]["name"]: (
                item["spec"],
                {
                    role: {key: s.get(key) for key in sizes}
                    for role, s in item["status"]["replicaStatuses"].items()
                },
            )
            for item in jobs
        },
        "pods": {
            pod["metadata"]["uid"]: (
                pod["metadata"]["name"],
                "deletionTimestamp" in pod["metadata"],
                pod["spec"],
            )
            for pod in pods
        },
    }


def _row(bad: Bad, result: str, message: str) -> str:
    """Return the row of the document."""
    asked = json.dumps(bad.spec)
    status = message.replace("|", "\\|")
    return f"| {bad.id} | `{asked}` | {result} | `{status}` |"


async def _with_kube(
    cluster: Cluster, what: Callable[[Kube, str], Awaitable[None]], namespace: str
) -> None:
    async with connect(user_agent="elasticjob-tests", kubeconfig=cluster.kubeconfig) as kube:
        await what(kube, namespace)


async def _make_namespace(kube: Kube, namespace: str) -> None:
    await kube.create(NAMESPACES, None, {"metadata": {"name": namespace}})


async def _configure(port: int, kube: Kube, namespace: str) -> None:
    """Let the webhook judge labelled objects only; the others must reach the operator."""
    configuration = admission.configuration(namespace, port, namespace, JUDGED)
    await kube.create(WEBHOOKS, None, configuration)
    await admission.configured(kube, namespace)


async def _prepare(kube: Kube, namespace: str) -> None:
    train = job(RUNNING, replicas=4, autoscaling={"resourceLimits": {"cpu": "500m", "rdma/hca": 4}})
    train["spec"]["replicaSpecs"]["worker"]["minReplicas"] = 2
    train["spec"]["replicaSpecs"]["worker"]["slotsPerReplica"] = 2
    async with kubelet(kube, namespace):
        for body in (train, job(SUSPENDED), job(FINISHED, replicas=1)):
            await kube.create(ELASTIC_JOBS, namespace, body)
        for name in (RUNNING, SUSPENDED, FINISHED):
            await phase(kube, namespace, ELASTIC_JOBS, name, "Running")
        await end(kube, namespace, f"{FINISHED}-worker-0", 0)
        await phase(kube, namespace, ELASTIC_JOBS, FINISHED, "Succeeded")
        await kube.patch(
            ELASTIC_JOBS, namespace, SUSPENDED, {"spec": {"runPolicy": {"suspend": True}}}
        )
        await phase(kube, namespace, ELASTIC_JOBS, SUSPENDED, "Suspended")

        async def settled() -> bool:
            return len(await workers(kube, namespace)) == 5 and not await workers(
                kube, namespace, SUSPENDED
            )

        await until("the suspended job's pods are deleted", settled)
        await until(
            "4 workers ready",
            lambda: _status(kube, namespace),
            lambda status: status["workers"] == "4/4",
        )
    stranger = {
        "metadata": {"name": "stranger"},
        "spec": {"containers": [{"name": "c", "image": "c:1"}]},
    }
    await kube.create(PODS, namespace, stranger)
    # It stays in deletion during the tests. Without a node, the garbage collector would soon set it
    # to Failed.
    leaving = "train-worker-1"
    await kube.create(NODES, None, {"metadata": {"name": namespace}})
    binding = {"metadata": {"name": leaving}, "target": {"kind": "Node", "name": namespace}}
    await kube.request("POST", PODS.path(namespace, leaving, "binding"), body=binding)
    await kube.patch(PODS, namespace, leaving, {"metadata": {"finalizers": [HOLD]}})
    await kube.delete(PODS, namespace, leaving)


async def _tear_down(kube: Kube, namespace: str) -> None:
    await kube.patch(PODS, namespace, "train-worker-1", {"metadata": {"finalizers": None}})
    await kube.delete(NODES, None, namespace)
    await kube.delete(WEBHOOKS, None, namespace)
    await kube.delete(NAMESPACES, None, namespace)


async def _status(kube: Kube, namespace: str) -> Json:
    status: Json = (await kube.get(ELASTIC_JOBS, namespace, RUNNING))["status"]
    return status


async def _is_there(kube: Kube, resource: Resource, namespace: str, name: str) -> bool:
    return any(
        item["metadata"]["name"] == name for item in (await kube.list(resource, namespace))["items"]
    )
