"""Checks that an object that the operator cannot read, or fails on, gets a condition and stops
nothing else.

The definitions of this cluster accept anything in a template and in a plan, as earlier versions
did.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import CRDS, ELASTIC_JOBS, EVENTS, SCALE_OUTS, SCALE_PLANS, Resource
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster.cluster import Cluster

from tests.conftest import own_cluster
from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import create, job, manifest, operator, phase, status_of
from tests.support.wait import until
from tools.generate import definitions

pytestmark = pytest.mark.thorough

ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEPTH = 1200
"""Deeper than Python's stack, and shallower than the API server's limit."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with own_cluster(tmp_path_factory, control_plane_only=True) as opened:
        asyncio.run(_open_definitions(opened.kubeconfig))
        yield opened


async def _open_definitions(kubeconfig: Path) -> None:
    defined = definitions()
    for plural, path in (
        ("elasticjobs", "master.template"),
        ("elasticjobs", "replicaSpecs"),
        ("scaleplans", ""),
    ):
        (version,) = defined[plural]["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        if path == "master.template":
            schema["properties"]["master"]["properties"]["template"] = ANYTHING
        elif path == "replicaSpecs":
            role = schema["properties"]["replicaSpecs"]["additionalProperties"]
            role["properties"]["template"] = ANYTHING
            rules = "x-kubernetes-validations"
            role[rules] = [rule for rule in role[rules] if "self.template.spec" not in rule["rule"]]
        else:
            schema["properties"]["junk"] = ANYTHING
    async with connect(user_agent="test", kubeconfig=kubeconfig) as kube:
        for definition in defined.values():
            name = definition["metadata"]["name"]
            await kube.apply(CRDS, None, name, definition, field_manager="test")


def deep(field: str) -> str:
    return f'"{field}":' + '{"a":' * DEPTH + "1" + "}" * DEPTH


async def create_deep(kube: Kube, namespace: str, body: Json, hole: str) -> None:
    """Create an object with a deep value in place of the field `hole`.

    Python cannot serialize the value either.
    """
    text = json.dumps(body).replace(f'"{hole}": null', deep(hole))
    assert len(text) > DEPTH

    async def accepted() -> bool:  # the API server serves changed definitions a moment later
        resource = {each.kind: each for each in (ELASTIC_JOBS, SCALE_PLANS)}[body["kind"]]
        stored = await kube.request(
            "POST", resource.path(namespace), body=msgspec.Raw(text.encode()), params={}
        )
        if stored.count(b'{"a":') >= DEPTH:
            return True
        await kube.delete(resource, namespace, body["metadata"]["name"])
        return False

    await until("a deep object is stored", accepted)


def conditions(
    cluster: Cluster, namespace: str, resource: Resource, name: str
) -> Callable[[], dict[str, Json]]:
    """Return a function that reads an object's true conditions, at any depth of the object."""
    query = f"--kubeconfig={cluster.kubeconfig} -n {namespace} get {resource.plural} {name}"
    command = [str(cluster.bin / "kubectl"), *query.split(), "-o=jsonpath={.status.conditions}"]

    def read() -> dict[str, Json]:
        text = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60
        ).stdout
        return {each["type"]: each for each in json.loads(text or "[]") if each["status"] == "True"}

    return read


async def one_event(kube: Kube, namespace: str, name: str, reason: str) -> None:
    """Wait until the object has an event, its only one."""

    async def reasons() -> list[str]:
        listed = (await kube.list(EVENTS, namespace))["items"]
        return [event["reason"] for event in listed if event["regarding"]["name"] == name]

    assert await until(f"an event about {name}", reasons) == [reason]


@pytest.mark.guarantee("unreadable-object")
async def test_a_too_deeply_nested_object_gets_a_condition_and_all_others_continue(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    hole: Json = {"template": {"junk": None}}
    await create_deep(kube, namespace, job("listed", master=hole), "junk")
    foreign = {
        "type": "Reviewed",
        "status": "True",
        "reason": "ByHand",
        "message": "fine",
        "observedGeneration": 1,
    }
    foreign["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    applied = {
        "apiVersion": ELASTIC_JOBS.api_version,
        "kind": "ElasticJob",
        "status": {"conditions": [foreign]},
    }
    await kube.apply(
        ELASTIC_JOBS,
        namespace,
        "listed",
        applied,
        field_manager="somebody",
        subresource="status",
    )
    with pytest.raises(Refused, match="nested too deeply"):
        await kube.get(ELASTIC_JOBS, namespace, "listed")

    async with (
        operator(cluster.kubeconfig, namespace, tmp_path / "log") as process,
        kubelet(kube, namespace, agents=False),
    ):
        await kube.create(ELASTIC_JOBS, namespace, job("bystander"))
        await phase(kube, namespace, ELASTIC_JOBS, "bystander", "Running")
        await create_deep(kube, namespace, job("watched", master=hole), "junk")
        await create_deep(
            kube,
            namespace,
            manifest(SCALE_PLANS, "plan", jobName="bystander", createPods=[{}], junk=None),
            "junk",
        )
        for resource, name in (
            (ELASTIC_JOBS, "listed"),
            (ELASTIC_JOBS, "watched"),
            (SCALE_PLANS, "plan"),
        ):
            read = conditions(cluster, namespace, resource, name)
            found = (
                await until(
                    f"{name} says that it cannot be read", read, lambda found: "Unreadable" in found
                )
            )["Unreadable"]
            assert found["reason"] == "CannotBeDecoded"
            assert "levels deep" in found["message"]
            await one_event(kube, namespace, name, "Unreadable")
        assert conditions(cluster, namespace, ELASTIC_JOBS, "listed")()["Reviewed"] == foreign
        await create(kube, namespace, SCALE_OUTS, "more", jobName="bystander", count=1)
        await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")

        # Once it can be read, it is a job like any other, and the condition is removed.
        for name in ("listed", "watched"):
            await kube.patch(
                ELASTIC_JOBS, namespace, name, {"spec": {"master": {"template": None}}}
            )
            await phase(kube, namespace, ELASTIC_JOBS, name, "Running")
            read = conditions(cluster, namespace, ELASTIC_JOBS, name)
            await until(
                f"{name} has no condition any more", read, lambda found: "Unreadable" not in found
            )
        assert conditions(cluster, namespace, ELASTIC_JOBS, "listed")()["Reviewed"] == foreign
        assert process.returncode is None


@pytest.mark.guarantee("unforeseen-operator-error")
async def test_a_job_on_which_the_operator_fails_has_a_condition_until_it_succeeds(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    odd: dict[str, Any] = {"template": {"spec": {"securityContext": "x"}}}
    async with (
        operator(cluster.kubeconfig, namespace, tmp_path / "log") as process,
        kubelet(kube, namespace, agents=False),
    ):
        await kube.create(ELASTIC_JOBS, namespace, job("odd", master=odd))
        await kube.create(ELASTIC_JOBS, namespace, job("bystander"))
        read = conditions(cluster, namespace, ELASTIC_JOBS, "odd")
        found = (
            await until("the job has a condition", read, lambda found: "ReconcileFailed" in found)
        )["ReconcileFailed"]
        assert found["reason"] == "TypeError"
        assert "the operator cannot reconcile this job" in found["message"]
        await one_event(kube, namespace, "odd", "ReconcileFailed")
        await phase(kube, namespace, ELASTIC_JOBS, "bystander", "Running")
        assert "phase" not in await status_of(kube, namespace, ELASTIC_JOBS, "odd")

        await kube.patch(ELASTIC_JOBS, namespace, "odd", {"spec": {"master": {"template": None}}})
        await phase(kube, namespace, ELASTIC_JOBS, "odd", "Running")
        await until("the condition is removed", read, lambda found: "ReconcileFailed" not in found)
        assert process.returncode is None
