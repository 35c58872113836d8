"""Generated files are complete, and the types can read what the API server stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scale_requests import ScaleIn, ScaleOut
from elasticjob_api.scaleplan import ScalePlan

from tools import generate
from tools.pod_template import embedded
from tools.reference import reference

DEFINITIONS = generate.definitions()
KINDS = {
    "elasticjobs": ElasticJob,
    "scaleplans": ScalePlan,
    "scaleins": ScaleIn,
    "scaleouts": ScaleOut,
}
OF_KUBERNETES = (
    "spec.replicaSpecs.*.template",
    "spec.replicaSpecs.*.volumeClaimTemplates[].spec",
    "spec.master.template",
    "spec.master.resources",
)
JOB = {
    "metadata": {"name": "digits"},
    "spec": {
        "framework": "jax",
        "replicaSpecs": {"worker": {"template": {"spec": {"containers": []}}}},
    },
}


def test_the_kustomization_of_the_crds_lists_all_of_them() -> None:
    kustomization = msgspec.yaml.decode((generate.CRDS / "Kustomization").read_bytes())
    assert kustomization["resources"] == sorted(f"{plural}.yaml" for plural in DEFINITIONS)


def schema_of(plural: str) -> dict[str, Any]:
    found: dict[str, Any] = DEFINITIONS[plural]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every field below a schema, except those inside of Kubernetes' own types."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        if f"{path}.{name}" not in OF_KUBERNETES:
            yield from fields(field, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", ".*")):
        if key in schema:
            yield from fields(schema[key], path + suffix)


def everywhere(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a schema and all schemas in it."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from everywhere(field, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", ".*")):
        if key in schema:
            yield from everywhere(schema[key], path + suffix)


@pytest.mark.parametrize("plural", KINDS)
def test_a_rule_at_the_root_refuses_no_update_of_a_stored_object(plural: str) -> None:
    for rule in schema_of(plural).get("x-kubernetes-validations", ()):
        assert rule["optionalOldSelf"]
        assert rule["rule"].startswith("oldSelf.hasValue() || ")


@pytest.mark.parametrize("plural", KINDS)
def test_every_field_is_described(plural: str) -> None:
    schema = schema_of(plural)
    bare = [
        path
        for part in ("spec", "status")
        for path, field in fields(schema["properties"][part], part)
        if not field.get("description")
    ]
    assert not bare


@pytest.mark.parametrize("plural", KINDS)
def test_a_status_has_no_defaults_and_shows_only_written_fields(plural: str) -> None:
    status = schema_of(plural)["properties"]["status"]
    assert [path for path, field in fields(status, "status") if "default" in field] == []
    shown = {
        field: [each["status"] for each in value]
        for field, value in status.get("default", {}).items()
    }
    assert shown == ({"conditions": ["Unknown"]} if plural == "elasticjobs" else {})


@pytest.mark.parametrize("plural", KINDS)
def test_every_field_is_in_the_reference(plural: str) -> None:
    text = reference({plural: DEFINITIONS[plural]})
    schema = schema_of(plural)
    for part in ("spec", "status"):
        for path, _ in fields(schema["properties"][part], part):
            assert f"`{path.replace('.*', '.<name>')}`" in text


def test_conditions_are_a_map_by_type() -> None:
    conditions = schema_of("elasticjobs")["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_every_field_named_in_a_rule_exists() -> None:
    for plural in KINDS:
        for path, field in [("", schema_of(plural)), *fields(schema_of(plural))]:
            for rule in field.get("x-kubernetes-validations", ()):
                at = field
                for name in rule.get("fieldPath", "").split(".")[1:]:
                    assert name in at["properties"], f"{plural}{path}: {rule['fieldPath']}"
                    at = at["properties"][name]


def test_the_defaults_of_the_schema_are_the_defaults_of_the_types() -> None:
    """A job read without the API server's defaults is the same as one read with them."""
    spec = schema_of("elasticjobs")["properties"]["spec"]
    job = msgspec.json.decode(msgspec.json.encode(JOB), type=ElasticJob)
    defaulted = msgspec.json.decode(
        msgspec.json.encode(JOB | {"spec": with_defaults(JOB["spec"], spec)}), type=ElasticJob
    )
    assert job == defaulted
    assert defaulted.spec.run_policy.start_policy == "AnyMin"


def with_defaults(value: Any, schema: dict[str, Any]) -> Any:
    """Fill in defaults as the API server does."""
    if not isinstance(value, dict):
        return value
    filled = dict(value)
    for name, field in schema.get("properties", {}).items():
        if name not in filled and "default" in field:
            filled[name] = field["default"]
        if name in filled:
            filled[name] = with_defaults(filled[name], field)
    if "additionalProperties" in schema:
        filled = {
            key: with_defaults(entry, schema["additionalProperties"])
            for key, entry in filled.items()
        }
    return filled


def test_fields_of_a_newer_version_are_ignored() -> None:
    newer = JOB | {"status": {"phase": "Running", "somethingNew": 1}, "kind": "ElasticJob"}
    assert (
        msgspec.json.decode(msgspec.json.encode(newer), type=ElasticJob).status.phase == "Running"
    )


def test_resources_keep_their_kubernetes_names() -> None:
    body = {
        "metadata": {"name": "p"},
        "spec": {
            "jobName": "j",
            "replicaResourceSpecs": {
                "worker": {"resource": {"nvidia.com/gpu": 2, "rdma/hca": "1", "cpu": "500m"}}
            },
        },
    }
    plan = msgspec.json.decode(msgspec.json.encode(body), type=ScalePlan)
    assert plan.spec.replica_resource_specs["worker"].resource["nvidia.com/gpu"] == 2
    assert msgspec.to_builtins(plan) == body


@pytest.mark.parametrize("plural", KINDS)
def test_unknown_fields_are_not_stored(plural: str) -> None:
    assert (
        "x-kubernetes-preserve-unknown-fields"
        not in msgspec.json.encode(DEFINITIONS[plural]).decode()
    )


@pytest.mark.guarantee("bad-input-is-refused")
@pytest.mark.parametrize("plural", KINDS)
def test_every_list_map_and_text_is_bounded(plural: str) -> None:
    parts = schema_of(plural)["properties"]
    for part in ("spec", "status"):
        assert [path for path, field in everywhere(parts[part], part) if is_open(field)] == []


def is_open(schema: dict[str, Any]) -> bool:
    """Return whether a list, map or text has no bound. Enumerations and times need none."""
    if schema.get("x-kubernetes-int-or-string"):
        return "maxLength" not in schema
    match schema["type"]:
        case "array":
            return "maxItems" not in schema
        case "object":
            return "additionalProperties" in schema and "maxProperties" not in schema
        case "string":
            return not {"maxLength", "enum", "format"} & schema.keys()
    return False


@pytest.mark.parametrize("plural", KINDS)
def test_every_number_in_a_spec_is_bounded_except_those_of_kubernetes(plural: str) -> None:
    spec = schema_of(plural)["properties"]["spec"]
    numbers = [
        (path, field)
        for path, field in fields(spec, "spec")
        if field.get("type") in ("integer", "number")
    ]
    assert numbers
    assert [path for path, field in numbers if not {"minimum", "maximum"} <= field.keys()] == []


@pytest.mark.guarantee("bad-input-is-refused")
@pytest.mark.parametrize("plural", KINDS)
def test_every_field_of_a_status_is_bounded(plural: str) -> None:
    """No client can write more into a status than the operator and `kubectl` can handle."""
    status = schema_of(plural)["properties"]["status"]
    found = [
        (path, field) for path, field in everywhere(status, "status") if "properties" not in field
    ]
    assert found
    assert [path for path, field in found if not BOUNDS[kind_of(field)] & field.keys()] == []
    least = [
        path for path, field in found if kind_of(field) == "integer" and "minimum" not in field
    ]
    assert least == []


BOUNDS = {
    "array": {"maxItems"},
    "object": {"maxProperties"},
    "string": {"maxLength", "enum"},
    "quantity": {"maxLength"},
    "integer": {"maximum"},
    # JSON has neither infinity nor NaN, so eight bytes hold each number.
    "number": {"type"},
    "boolean": {"type"},
}


def kind_of(schema: dict[str, Any]) -> str:
    return "quantity" if schema.get("x-kubernetes-int-or-string") else schema["type"]


MAX_REQUEST_BYTES = 1_500_000
"""The limit of etcd for one request. That of the API server is higher."""
MAX_ANNOTATION_BYTES = 262_144
"""The limit for all annotations of an object. `kubectl apply` copies the whole object into one."""


@pytest.mark.parametrize("plural", KINDS)
def test_a_definition_fits_into_etcd_and_into_the_annotation_of_kubectl_apply(plural: str) -> None:
    applied = msgspec.json.encode(DEFINITIONS[plural])
    assert len(applied) < 0.75 * MAX_ANNOTATION_BYTES, (
        "leave room for the fields of newer versions of Kubernetes"
    )
    # An annotation has a backslash before each quotation mark.
    as_annotation = msgspec.json.encode(applied.decode())
    assert len(applied) + len(as_annotation) < MAX_REQUEST_BYTES / 2, (
        "managedFields may need the same again"
    )


def test_a_pod_template_has_the_fields_of_a_pod() -> None:
    template = embedded("PodTemplateSpec")
    container = template["properties"]["spec"]["properties"]["containers"]["items"]
    assert {"name", "image", "command", "resources", "volumeMounts", "lifecycle"} <= container[
        "properties"
    ].keys()
    assert container["required"] == ["name"]
    assert container["properties"]["resources"] == embedded("ResourceRequirements")
    assert "ephemeralContainers" not in template["properties"]["spec"]["properties"]
    assert "ownerReferences" not in template["properties"]["metadata"]["properties"]
