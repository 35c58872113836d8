"""Tests that manifests are refused whose fields contradict each other or the operator.

Examples are ports used twice in a pod, and limits below the members' requests.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_api.reserved_variables import member_variable_names
from elasticjob_operator.core.manifests.pods import agent_variables
from elasticjob_operator.core.manifests.validation import validation_error

CONTAINERS = "spec.replicaSpecs.worker.template.spec.containers"


def job(
    *containers: Json, framework: str = "pytorch", limits: Json | None = None, **more: Any
) -> ElasticJob:
    """Return a job with one role and these fields in its containers."""
    made = [
        {"name": f"c{n}", "image": "i:1", "command": ["a"], **each}
        for n, each in enumerate(containers or ({},))
    ]
    pod = {"containers": made, **more.pop("pod", {})}
    spec = {
        "framework": framework,
        "replicaSpecs": {"worker": {"template": {"spec": pod}, **more}},
        "autoscaling": {"resourceLimits": limits or {}},
    }
    return msgspec.convert(
        {"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": spec}, ElasticJob
    )


@pytest.mark.guarantee("bad-input-is-refused")
@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_a_training_container_that_kubernetes_would_restart_is_refused(policy: str) -> None:
    error = validation_error(job({"restartPolicy": policy}))
    assert error is not None
    assert error.startswith(f"{CONTAINERS}[0].restartPolicy: is {policy!r}, but must be Never")
    for accepted in (job({"restartPolicy": "Never"}), job({}, {"restartPolicy": "Always"})):
        assert validation_error(accepted) is None


def ports(*numbers: int, **more: Any) -> Json:
    return {"ports": [{"containerPort": number, **more} for number in numbers]}


@pytest.mark.guarantee("bad-input-is-refused")
@pytest.mark.parametrize(
    ("made", "field", "refusal"),
    [
        (
            job(ports(8080), ports(8080)),
            "[1].ports[0]",
            "8080 is a port of containers[0] too, in the same pod",
        ),
        (
            job({}, ports(1, 2), ports(2)),
            "[2].ports[0]",
            "2 is a port of containers[1] too, in the same pod",
        ),
        (
            job(ports(1, 50053)),
            "[0].ports[1]",
            "50053 is the agent's, which listens there when its member is ready",
        ),
        (
            job({}, ports(29500)),
            "[1].ports[0]",
            "29500 is where the training processes of pytorch meet",
        ),
        (
            job({}, ports(8476), framework="jax"),
            "[1].ports[0]",
            "8476 is where the training processes of jax meet",
        ),
    ],
)
def test_ports_that_clash_in_a_pod_are_refused_by_field(
    made: ElasticJob, field: str, refusal: str
) -> None:
    assert validation_error(made) == f"{CONTAINERS}{field}.containerPort: {refusal}; use another"


@pytest.mark.parametrize(
    "made",
    [
        job(ports(29500), ports(8080)),
        job(ports(8080, 8080)),
        job(ports(53), ports(53, protocol="UDP")),
        job({}, ports(29500), framework="custom"),
        job(ports(50053), ports(29500), agent="None"),
        job(ports(50053), pod={"hostNetwork": True}),
        job({}, {"ports": [{"name": "no number"}]}),
    ],
)
def test_ports_that_clash_with_none_are_the_users(made: ElasticJob) -> None:
    assert validation_error(made) is None


def test_the_variables_of_any_member_are_those_that_the_operator_sets() -> None:
    set_here = {each["name"] for each in agent_variables(job({}), "worker", 0, 0, {})}
    assert member_variable_names("pytorch") == set_here


@pytest.mark.parametrize("name", ["ELASTICJOB_INDEX", "ELASTICJOB_TOKEN", "ELASTICJOB_SLOTS"])
def test_a_variable_that_the_operator_sets_is_refused(name: str) -> None:
    assert validation_error(job({"env": [{"name": name, "value": "9"}]})) == (
        f"{CONTAINERS}[0].env[0].name: {name!r} is set by the operator, and says what member this "
        "is; remove it"
    )
    assert validation_error(job({}, {"env": [{"name": name, "value": "9"}]})) is None, (
        "in a sidecar nothing sets it"
    )


@pytest.mark.guarantee("bad-input-is-refused")
@pytest.mark.parametrize(
    ("limits", "refusal"),
    [
        ({"gpu": 4}, "gpu: 4 is below the 8 that the members of minReplicas request together"),
        (
            {"nvidia.com/gpu": 4},
            "nvidia.com/gpu: 4 is below the 8 that the members of minReplicas request together",
        ),
        (
            {"rdma/hca": 1},
            "rdma/hca: 1 is below the 2 that the members of minReplicas request together",
        ),
        (
            {"cpu": "900m"},
            "cpu: 900m is below the 1 that the members of minReplicas request together",
        ),
    ],
)
def test_bounds_below_what_the_fewest_members_request_are_refused(
    limits: Json, refusal: str
) -> None:
    worker = {
        "resources": {"limits": {"nvidia.com/gpu": 4, "rdma/hca": 1}, "requests": {"cpu": "500m"}}
    }
    made = job(worker, limits=limits, minReplicas=2, replicas=2)
    assert validation_error(made) == f"spec.autoscaling.resourceLimits.{refusal}"
    assert (
        validation_error(job(worker, limits={"gpu": 8, "cpu": 1}, minReplicas=2, replicas=2))
        is None
    )


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [
        (
            {"npu": 4},
            ": 'npu' is not cpu, memory or an extended resource <domain>/<name> of at most 63 "
            "characters, ",
        ),
        ({"a/b/c": 4}, ": 'a/b/c' is not cpu, memory or an extended resource"),
        ({"amd.com/gpu": "2500m"}, ".amd.com/gpu: 2500m must be a whole number"),
    ],
)
def test_bounds_of_what_no_member_can_have_are_refused(limits: Json, refusal: str) -> None:
    error = validation_error(job(limits=limits))
    assert error is not None
    assert error.startswith(f"spec.autoscaling.resourceLimits{refusal}")
