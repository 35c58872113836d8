"""Tests the manifests of members' and the master's pods.

The user's template stays as written; the operator only adds to it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_operator.core.manifests.master_pod import master_pod
from elasticjob_operator.core.manifests.pods import member_pod, with_resources, within_bounds
from elasticjob_operator.core.model.limit_ranges import Bounds
from elasticjob_operator.core.model.observed import Defaults


def test_a_limit_is_changed_where_there_is_one_and_added_only_where_it_must_be() -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    changed = with_resources(resources, {"cpu": "2", "memory": "3Gi"})
    assert changed == {"requests": {"cpu": "2", "memory": "3Gi"}, "limits": {"memory": "3Gi"}}
    assert with_resources({}, {"cpu": "2"}) == {"requests": {"cpu": "2"}}
    gpu = {"nvidia.com/gpu": 1}
    assert with_resources({}, gpu) == {"requests": gpu, "limits": gpu}, (
        "what cannot be overcommitted needs a limit"
    )
    more = {"memory": "3Gi"}
    by_default = with_resources({}, more, {"cpu": "1", "memory": "2Gi"})
    assert by_default == {"requests": more, "limits": more}, (
        "the namespace's default limit is less than that"
    )
    roomy = with_resources({}, more, {"memory": "8Gi"})
    assert roomy == {"requests": more}, (
        "the namespace gives its own limit, which is no lower than it was"
    )


def test_the_template_is_kept_as_written_but_for_reserved_names() -> None:
    mine = {"name": "MINE", "value": "1"}
    train = {
        "name": "train",
        "image": "i:1",
        "command": ["a"],
        "args": ["b"],
        "env": [mine, {"name": "ELASTICJOB_INDEX", "value": "9"}],
    }
    sidecar = {"name": "sidecar", "image": "s:1"}
    template = {
        "metadata": {"labels": {"team": "x"}, "finalizers": ["example.com/billing"]},
        "spec": {"containers": [train, sidecar], "nodeSelector": {"a": "b"}},
    }
    body = {
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "spec": {"framework": "jax", "replicaSpecs": {"worker": {"template": template}}},
    }
    made = member_pod(
        msgspec.convert(body, ElasticJob),
        "worker",
        2,
        0,
        resources={},
        restarts=0,
        defaults=Defaults("m:1", "a:1"),
    )
    container = made["spec"]["containers"][0]
    assert made["spec"]["containers"][1] == sidecar
    assert made["spec"]["nodeSelector"] == {"a": "b"}
    assert made["metadata"]["labels"]["team"] == "x"
    assert made["metadata"]["finalizers"] == ["example.com/billing"]
    assert container["command"] == ["/elasticjob/agent/bin/elasticjob-agent", "run", "--"]
    assert container["args"] == ["a", "b"]
    variables = [variable["name"] for variable in container["env"]]
    assert len(variables) == len(set(variables))
    assert mine in container["env"]
    assert {"name": "ELASTICJOB_INDEX", "value": "2"} in container["env"]
    assert made["spec"]["initContainers"][0]["image"] == "a:1"


KEY = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"


def of_job(spec: dict[str, Any], **more: Any) -> ElasticJob:
    """Return a job with one role, of which the template's pod spec is given."""
    template = {
        "spec": {"containers": [{"name": "train", "image": "i:1", "command": ["a"]}], **spec}
    }
    body = {
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "spec": {"framework": "jax", "replicaSpecs": {"worker": {"template": template}}, **more},
    }
    return msgspec.convert(body, ElasticJob)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({}, False),
        ({"automountServiceAccountToken": True}, True),
        ({"serviceAccountName": "reader"}, None),
        ({"serviceAccount": "reader"}, None),  # the older name, which the API server still takes
        ({"serviceAccountName": "reader", "automountServiceAccountToken": False}, False),
    ],
)
def test_a_member_gets_a_token_only_where_its_template_asks_for_one(
    asked: dict[str, Any], given: bool | None
) -> None:
    made = member_pod(
        of_job(asked), "worker", 0, 0, resources={}, restarts=0, defaults=Defaults("m:1", "a:1")
    )
    assert made["spec"].get("automountServiceAccountToken") is given


def test_a_master_writes_its_log_in_the_operators_format() -> None:
    defaults = Defaults("m:1", "a:1", log_format="json")
    [container] = master_pod(of_job({}), 0, restarts=0, defaults=defaults)["spec"]["containers"]
    assert {"name": names.ENV_LOG_FORMAT, "value": "json"} in container["env"]


def test_a_master_gets_the_administrators_prices_if_there_are_some() -> None:
    def variables(defaults: Defaults) -> dict[str, str]:
        [container] = master_pod(of_job({}), 0, restarts=0, defaults=defaults)["spec"]["containers"]
        return {each["name"]: each.get("value", "") for each in container["env"]}

    assert names.ENV_PRICES not in variables(Defaults("m:1", "a:1", currency="EUR"))
    found = variables(Defaults("m:1", "a:1", prices="cpu=0.04", currency="EUR"))
    assert (found[names.ENV_PRICES], found[names.ENV_CURRENCY]) == ("cpu=0.04", "EUR")


@pytest.mark.guarantee("master-hangs")
def test_probes_find_a_hanging_master_within_a_minute_and_its_template_takes_precedence() -> None:
    [container] = master_pod(of_job({}), 0, restarts=0, defaults=Defaults("m:1", "a:1"))["spec"][
        "containers"
    ]
    liveness = container["livenessProbe"]
    readiness = container["readinessProbe"]
    longest = (
        (liveness["periodSeconds"]) * (liveness["failureThreshold"]) + liveness["timeoutSeconds"]
    )
    assert longest + liveness["terminationGracePeriodSeconds"] <= 40, (
        "twenty seconds for the next master to start"
    )
    assert liveness["httpGet"] == {"path": "/healthz", "port": names.HTTP_PORT, "scheme": "HTTPS"}
    assert readiness["httpGet"]["path"] == "/readyz"
    theirs = {"name": "master", "livenessProbe": {"exec": {"command": ["true"]}}}
    template = {"spec": {"containers": [{"name": "other"}, theirs]}}
    made = master_pod(
        of_job({}, master={"template": template}), 0, restarts=0, defaults=Defaults("m:1", "a:1")
    )
    [container] = made["spec"]["containers"]
    assert container["livenessProbe"] == theirs["livenessProbe"]
    assert container["readinessProbe"] == readiness


@pytest.mark.guarantee("flood-of-connections")
def test_a_master_has_a_memory_limit_unless_its_job_says_otherwise() -> None:
    """A master that uses too much memory must be killed before its node runs out of memory."""
    limits = []
    for spec in (
        {},
        {"master": {"image": "m:2"}},
        {"master": {"resources": {"requests": {"memory": "1Gi"}}}},
    ):
        [container] = master_pod(
            of_job({}, **spec), 0, restarts=0, defaults=Defaults("m:1", "a:1")
        )["spec"]["containers"]
        limits.append(container["resources"].get("limits"))
    usual = {"cpu": "1", "memory": "512Mi"}  # a quota on limits refuses a container without one
    assert limits == [usual, usual, None]


@pytest.mark.parametrize(
    ("sizes", "limit"),
    [
        ({"maxReplicas": 1000}, "512Mi"),
        ({"replicas": 1025}, "1024Mi"),
        ({"minReplicas": 3000, "maxReplicas": 4000}, "1024Mi"),
        ({"replicas": 2, "maxReplicas": 10_000}, "2560Mi"),
    ],
)
def test_the_default_memory_limit_of_a_master_follows_the_size_of_its_job(
    sizes: dict[str, int], limit: str
) -> None:
    role = {"worker": {"template": {}, **sizes}}
    made = master_pod(of_job({}, replicaSpecs=role), 0, restarts=0, defaults=Defaults("m:1", "a:1"))
    [container] = made["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "1", "memory": limit}
    assert container["resources"]["requests"] == {"cpu": "100m", "memory": "128Mi"}


@pytest.mark.parametrize(
    ("bounds", "requests", "limits"),
    [
        (Bounds(), ("100m", "128Mi"), ("1", "512Mi")),
        (Bounds(most={"memory": "300Mi", "cpu": "500m"}), ("100m", "128Mi"), ("500m", "300Mi")),
        (Bounds(least={"memory": "256Mi"}), ("100m", "256Mi"), ("1", "512Mi")),
        (Bounds(least={"cpu": "2"}), ("2", "128Mi"), ("2", "512Mi")),
        (Bounds(ratio={"cpu": "4", "memory": "2"}), ("250m", "256Mi"), ("1", "512Mi")),
    ],
    ids=["none", "maxima", "minima", "above the limit", "ratios"],
)
def test_only_a_default_master_is_fitted_into_the_bounds_of_the_namespace(
    bounds: Bounds, requests: tuple[str, str], limits: tuple[str, str]
) -> None:
    own = {"requests": {"memory": "3Gi"}, "limits": {"memory": "4Gi"}}
    for of, expected in (
        (
            of_job({}),
            {
                "requests": dict(zip(("cpu", "memory"), requests, strict=True)),
                "limits": dict(zip(("cpu", "memory"), limits, strict=True)),
            },
        ),
        (of_job({}, master={"resources": own}), own),
    ):
        made = master_pod(of, 0, restarts=0, defaults=Defaults("m:1", "a:1"))
        [container] = within_bounds(of, made, bounds)["spec"]["containers"]
        assert container["resources"] == expected


@pytest.mark.parametrize(
    ("annotations", "agent", "given"),
    [
        ({}, {}, "elasticjob-agent"),
        ({}, {"stateMemory": "1Gi"}, "elasticjob-agent,elasticjob-state"),
        ({KEY: "scratch"}, {}, "scratch,elasticjob-agent"),
        ({}, {"source": "Image"}, None),
        ({KEY: "scratch"}, {"source": "Image"}, "scratch"),
    ],
)
def test_our_own_volumes_do_not_keep_an_autoscaler_from_removing_a_node(
    annotations: dict[str, str], agent: dict[str, Any], given: str | None
) -> None:
    of = of_job({}, agent=agent)
    of.spec.replica_specs["worker"].template["metadata"] = {"annotations": annotations}
    made = member_pod(of, "worker", 0, 0, resources={}, restarts=0, defaults=Defaults("m:1", "a:1"))
    assert made["metadata"]["annotations"].get(KEY) == given


def test_a_master_passes_the_restricted_pod_security_level_and_its_template_takes_precedence() -> (
    None
):
    made = master_pod(of_job({}), 0, restarts=0, defaults=Defaults("m:1", "a:1"))["spec"]
    assert made["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = made["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {"name": "TMPDIR", "value": "/dev/shm"} in container["env"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    theirs = of_job(
        {},
        master={"template": {"spec": {"securityContext": {"runAsUser": 7, "runAsNonRoot": False}}}},
    )
    made = master_pod(theirs, 0, restarts=0, defaults=Defaults("m:1", "a:1"))["spec"]
    assert made["securityContext"] == {
        "runAsNonRoot": False,
        "runAsUser": 7,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
