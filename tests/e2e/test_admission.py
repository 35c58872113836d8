"""Refuses objects at the door, and lets them pass where no operator is there to refuse them."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from functools import partial

import pytest
import yaml
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.resources import SCALE_INS, SCALE_OUTS, SCALE_PLANS, WEBHOOKS
from elasticjob_localcluster.controlplane.ports import free_port

from tests.support import admission
from tests.support.e2e import images
from tests.support.e2e.sandbox import Sandbox, new_sandbox
from tests.support.e2e.scaling_jobs import of_workers
from tests.support.e2e.target_cluster import TargetCluster
from tests.support.operator_process import exists, manifest
from tests.support.wait import until

TOO_MANY = "spec.count: 9 more than 1: 10 members of role worker would be above maxReplicas 6"


@pytest.fixture
async def guarded(cluster: TargetCluster) -> AsyncIterator[Sandbox]:
    """Create a namespace whose operator serves the admission webhook."""
    port = free_port()
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    async with new_sandbox(cluster, *admission.arguments(name, port)) as sandbox:
        if cluster.deployed:
            if not await exists(sandbox.kube, WEBHOOKS, "", names.OPERATOR):
                pytest.skip("the operator has no webhook: make deploy MODE=admission")
            await admission.configured(sandbox.kube, names.OPERATOR)
            yield sandbox
            return
        body = admission.configuration(name, port, sandbox.namespace, {})
        await sandbox.kube.create(WEBHOOKS, None, body)
        try:
            await admission.configured(sandbox.kube, name)
            yield sandbox
        finally:
            await sandbox.kube.delete(WEBHOOKS, None, name)


def job(name: str, **pod: object) -> Json:
    """Return a job of one worker that only waits."""
    container = {"name": "train", "image": images.TRAINER, "command": ["sleep", "600"]}
    return of_workers(name, {"containers": [container], **pod}, replicas=1)


def circular(name: str) -> Json:
    """Return a job with two roles that wait for each other."""
    made = job(name)
    worker = made["spec"]["replicaSpecs"]["worker"]
    made["spec"]["replicaSpecs"] = {
        "worker": {**worker, "dependsOn": ["ps"]},
        "ps": {**worker, "dependsOn": ["worker"]},
    }
    return made


@pytest.mark.guarantee("refused-at-the-door")
async def test_kubectl_tells_what_the_status_would_and_an_operator_that_is_away_blocks_nobody(
    guarded: Sandbox,
) -> None:
    async def apply(body: Json, *options: str) -> str:
        given = yaml.safe_dump(body)
        return guarded.kubectl("apply", "-f", "-", *options, stdin=given, check=False)

    async def get(output: str, *what: str) -> str:
        return guarded.kubectl("get", *what, "-o", f"jsonpath={output}")

    guarded.apply(job("train"), job("other"))
    sizes = "{.items[*].status.replicaStatuses.worker.desired}"
    await until("both have a size", lambda: get(sizes, "ej"), lambda text: text == "1 1")
    same = {"replicaResourceSpecs": {"worker": {"replicas": 1}}}
    too_many = manifest(SCALE_OUTS, "too-many", jobName="train", count=9)
    edited = job("train")
    edited["spec"]["autoscaling"] = {"resourceLimits": {"npu": 1}}
    told = [
        (too_many, TOO_MANY),
        (
            manifest(SCALE_PLANS, "lost", jobName="nobody", **same),
            "Warning: spec.jobName: there is no ElasticJob 'nobody' in namespace",
        ),
        (
            manifest(SCALE_INS, "theirs", jobName="train", podNames=["other-worker-0"]),
            "spec.podNames[0]: 'other-worker-0' is not a worker pod of ElasticJob 'train'",
        ),
        (edited, "spec.autoscaling.resourceLimits: 'npu' is not cpu, memory or"),
        (circular("circle"), "dependsOn: ps, worker wait for each other; remove one of the"),
        (manifest(SCALE_PLANS, "same", jobName="train", **same), "Warning: spec: changes nothing"),
        (
            job("private", imagePullSecrets=[{"name": "of-nobody"}]),
            "Warning: spec.replicaSpecs.worker.template.spec.imagePullSecrets: there is no Secret",
        ),
    ]
    for body, text in told:
        # The API server uses a new configuration after a moment.
        dry_run = partial(apply, body, "--dry-run=server")
        said = await until(text, dry_run, partial(_says, text))
        assert ("denied the request" in said) != text.startswith("Warning"), said
    assert TOO_MANY in await apply(too_many)

    if guarded.cluster.deployed:
        guarded.operator.stop()
    else:
        guarded.operator.kill()
    assert "created" in await apply(too_many)
    guarded.operator.start()
    status = await until(
        "the operator refuses it",
        lambda: get("{.status}", "scaleout", "too-many"),
        lambda text: "ScaleFailed" in text,
    )
    assert json.loads(status)["message"] == TOO_MANY


def _says(text: str, answer: str) -> bool:
    return text in answer
