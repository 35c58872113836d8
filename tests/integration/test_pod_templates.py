"""Checks the schema of pod templates in the CRDs.

It is Kubernetes' own, and rejects whatever the API server rejects in a pod.
"""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import (
    CRDS,
    ELASTIC_JOBS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    Resource,
)
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster
from elasticjob_localcluster.crds import apply_crds

from tests.support.operator_process import job
from tests.support.wait import until
from tools import pod_template

REPOSITORY = Path(__file__).parents[2]
KINDS = {resource.kind: resource for resource in (ELASTIC_JOBS, SCALE_PLANS, SCALE_INS, SCALE_OUTS)}
MANIFESTS = sorted(path for path in (REPOSITORY / "examples").rglob("*.yaml"))
DRY_RUN = {"dryRun": "All", "fieldValidation": "Strict"}


def with_template(change: Json) -> Json:
    """Return a job whose worker template has these fields in its spec."""
    body = job()
    body["spec"]["replicaSpecs"]["worker"]["template"]["spec"] |= change
    return body


async def create_strictly(kube: Kube, namespace: str, body: Json) -> Json:
    """Create an object as kubectl does, in a dry run; return it as it would be stored."""
    path = KINDS[body["kind"]].path(namespace)
    stored: Json = msgspec.json.decode(await kube.request("POST", path, body=body, params=DRY_RUN))
    return stored


async def test_the_committed_schema_is_that_of_the_pinned_kubernetes(kube: Kube) -> None:
    served = msgspec.json.decode(await kube.request("GET", "/openapi/v3/api/v1"))
    assert pod_template.render(served) == pod_template.FILE.read_bytes(), (
        "run tools.pod_template (docs/install.md)"
    )


@pytest.mark.guarantee("bad-input-is-refused")
async def test_a_misspelled_field_is_rejected_by_kubectl(cluster: Cluster, namespace: str) -> None:
    body = job()
    container = body["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container["resorces"] = container.pop("resources")
    command = [
        str(cluster.bin / "kubectl"),
        f"--kubeconfig={cluster.kubeconfig}",
        "-n",
        namespace,
        "apply",
        "-f",
        "-",
    ]
    done = subprocess.run(
        command, input=yaml.safe_dump(body), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    assert (
        'unknown field "spec.replicaSpecs.worker.template.spec.containers[0].resorces"'
        in done.stderr
    )


DEEP: Json = {}
for _ in range(100):
    DEEP = {"a": DEEP}
ODD: dict[str, tuple[Json, str]] = {
    "securityContext is a text": ({"securityContext": "x"}, "template.spec.securityContext"),
    "containers is a map": ({"containers": {"name": "train"}}, "template.spec.containers"),
    "a container is a text": ({"containers": ["train"]}, "template.spec.containers[0]"),
    "a command is a number": (
        {"containers": [{"name": "t", "command": [1]}]},
        "containers[0].command[0]",
    ),
    "env is a map": ({"containers": [{"name": "t", "env": {"A": "b"}}]}, "containers[0].env"),
    "an amount is not a quantity": (
        {"containers": [{"name": "t", "resources": {"limits": {"memory": "a lot"}}}]},
        "resources.limits.memory",
    ),
    "tolerations is a number": ({"tolerations": 3}, "template.spec.tolerations"),
    "a pod restarts in its place": ({"restartPolicy": "OnFailure"}, "template.spec.restartPolicy"),
    "a node selector is deep": ({"nodeSelector": {"a": DEEP}}, "template.spec.nodeSelector.a"),
}


@pytest.mark.guarantee("bad-input-is-refused")
@pytest.mark.parametrize("case", ODD)
async def test_an_invalid_template_is_rejected_by_field(
    kube: Kube, namespace: str, case: str
) -> None:
    change, field = ODD[case]
    with pytest.raises(Refused) as refusal:
        await kube.create(ELASTIC_JOBS, namespace, with_template(change))
    assert field in refusal.value.message


async def test_an_invalid_template_or_resources_of_the_master_are_rejected_by_field(
    kube: Kube, namespace: str
) -> None:
    for master, field in (
        (
            {"template": {"spec": {"securityContext": "x"}}},
            "spec.master.template.spec.securityContext",
        ),
        ({"template": {"metadata": {"labels": ["a"]}}}, "spec.master.template.metadata.labels"),
        (
            {"template": {"spec": {"restartPolicy": "Always"}}},
            "spec.master.template.spec.restartPolicy",
        ),
        ({"resources": {"requests": "all"}}, "spec.master.resources.requests"),
    ):
        with pytest.raises(Refused) as refusal:
            await kube.create(ELASTIC_JOBS, namespace, job(master=master))
        assert field in refusal.value.message


@pytest.mark.guarantee("bad-input-is-refused")
async def test_fields_that_no_pod_has_are_not_stored(kube: Kube, namespace: str) -> None:
    stored = await kube.create(ELASTIC_JOBS, namespace, with_template({"junk": DEEP}))
    template = stored["spec"]["replicaSpecs"]["worker"]["template"]
    assert template == job()["spec"]["replicaSpecs"]["worker"]["template"]


@pytest.mark.parametrize(
    "path", MANIFESTS, ids=lambda path: str(path.relative_to(REPOSITORY / "examples"))
)
async def test_every_example_is_accepted_as_written(kube: Kube, namespace: str, path: Path) -> None:
    for body in yaml.safe_load_all(path.read_text()):
        if body.get("kind") in KINDS:  # the others are patches, and Kubernetes' own
            stored = await create_strictly(kube, namespace, body)
            for role, spec in body["spec"].get("replicaSpecs", {}).items():
                assert stored["spec"]["replicaSpecs"][role]["template"] == spec["template"]


async def test_values_that_go_programs_write_for_unset_fields_are_accepted(
    kube: Kube, namespace: str
) -> None:
    body = with_template(
        {"volumes": None, "securityContext": None, "dnsPolicy": "", "nodeSelector": {}}
    )
    template = body["spec"]["replicaSpecs"]["worker"]["template"]
    template["metadata"] = {
        "creationTimestamp": None,
        "labels": {"team": "vision"},
        "annotations": None,
    }
    template["spec"]["containers"][0] |= {
        "args": None,
        "imagePullPolicy": "",
        "env": [{"name": "A", "value": None}],
    }
    created = await create_strictly(kube, namespace, body)
    stored = created["spec"]["replicaSpecs"]["worker"]["template"]
    assert stored["metadata"] == {"labels": {"team": "vision"}}
    assert stored["spec"]["containers"][0]["env"] == [{"name": "A"}]


@pytest.mark.thorough
async def test_a_job_stored_before_a_template_rule_existed_can_still_be_scaled(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    definition = yaml.safe_load((REPOSITORY / "crds" / "elasticjobs.yaml").read_text())
    # Separate from the real definition, which other tests use, also by its other names.
    group = definition["spec"]["group"] = "earlier.example"
    for other_names in ("shortNames", "categories"):
        definition["spec"]["names"].pop(other_names)
    name = definition["metadata"]["name"] = f"elasticjobs.{group}"
    (version,) = definition["spec"]["versions"]
    roles = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["replicaSpecs"]
    role = roles["additionalProperties"]["properties"]
    template = role["template"]["properties"]["spec"]["properties"]
    (tmp_path / "now.yaml").write_text(yaml.safe_dump(definition))
    del template["restartPolicy"]["x-kubernetes-validations"]
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "crd.yaml").write_text(yaml.safe_dump(definition))

    jobs = Resource(group, version["name"], "elasticjobs", "ElasticJob")
    body = with_template({"restartPolicy": "OnFailure"}) | {"apiVersion": jobs.api_version}
    try:
        await apply_crds(cluster.kubeconfig, tmp_path / "earlier")
        await kube.create(jobs, namespace, body)
        await apply_crds(cluster.kubeconfig, tmp_path)

        async def refused() -> bool:
            try:
                await kube.request(
                    "POST",
                    jobs.path(namespace),
                    body=body | {"metadata": {"name": "new"}},
                    params=DRY_RUN,
                )
            except Refused:
                return True
            return False

        await until("the API server enforces the rule", refused)
        changed = await kube.patch(
            jobs, namespace, "job", {"spec": {"replicaSpecs": {"worker": {"replicas": 3}}}}
        )
        assert changed["spec"]["replicaSpecs"]["worker"]["replicas"] == 3
    finally:
        await kube.delete(CRDS, None, name)


def probe(port: int | str) -> Json:
    return {"httpGet": {"path": "/", "port": port}, "periodSeconds": 2}


async def test_a_template_with_fields_of_every_kind_is_stored_as_written(
    kube: Kube, namespace: str
) -> None:
    """A template may have every field of a pod: the same spec also makes a pod."""
    container = {
        "name": "train",
        "image": "train:1",
        "command": ["train"],
        "env": [
            {
                "name": "A",
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
            },
            {
                "name": "B",
                "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
            },
            {
                "name": "C",
                "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}},
            },
        ],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "livenessProbe": probe("http"),
        "readinessProbe": probe(8080),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
        "resources": {
            "requests": {"cpu": 1, "memory": "1Gi"},
            "limits": {"memory": "1073741824", "example.com/x": 2},
        },
        "securityContext": {
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "all", "mountPath": "/all"},
        ],
    }
    term = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a", "b"]}]}
    audience = {
        "serviceAccountToken": {"path": "token", "expirationSeconds": 3600, "audience": "x"}
    }
    spec: Json = {
        "containers": [container],
        "initContainers": [{"name": "first", "image": "i:1", "restartPolicy": "Always"}],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            {
                "name": "all",
                "projected": {
                    "sources": [audience, {"configMap": {"name": "c"}}],
                    "defaultMode": 420,
                },
            },
            {"name": "nfs", "nfs": {"server": "n", "path": "/"}},
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "podAffinityTerm": {
                            "labelSelector": {"matchLabels": {"a": "b"}},
                            "topologyKey": "z",
                        },
                    }
                ]
            },
        },
        "tolerations": [
            {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
        ],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "imagePullSecrets": [{"name": "registry"}],
        "terminationGracePeriodSeconds": 60,
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
        "securityContext": {
            "fsGroup": 1000,
            "sysctls": [{"name": "net.core.somaxconn", "value": "1024"}],
        },
    }
    stored = await create_strictly(kube, namespace, with_template(copy.deepcopy(spec)))
    assert stored["spec"]["replicaSpecs"]["worker"]["template"]["spec"] == spec
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "same"}, "spec": spec}
    await kube.request("POST", PODS.path(namespace), body=pod, params=DRY_RUN)
