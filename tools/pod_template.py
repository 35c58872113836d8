"""The schema of pod templates and container resources, as an API server of Kubernetes publishes it.

    kubectl get --raw /openapi/v3/api/v1 | .venv/bin/python -m tools.pod_template

writes tools/pod_template.json: the definitions of PodTemplateSpec and ResourceRequirements in that
version of Kubernetes, one a line. `make generate` copies them into the CRDs. So the API server
refuses a misspelled field of a template, or one of a wrong type, when the job is created, and
stores nothing that is nested deeper than a pod.

The file contains only names, types and enumerations, because a CRD must fit into etcd and into an
annotation of `kubectl apply`. The API server checks the values when the pod is created.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from elasticjob_api.meta import QUANTITY_SCHEMA, Json

FILE = Path(__file__).with_suffix(".json")
ROOTS = ("PodTemplateSpec", "ResourceRequirements")
MAX_ENTRIES = 4096
"""The most entries of a list or map in a template."""
MAX_CHARACTERS = 262_144
"""The most characters of a text in a template. All annotations of an object have the same limit."""
_INTEGER_OR_STRING: Json = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_NAME: Json = {"type": "string", "maxLength": 253}
_OWN: dict[str, Json] = {
    "ObjectMeta": {  # without fields that only stored objects have, such as owners
        "type": "object",
        "properties": {
            "name": _NAME,
            "generateName": _NAME,
            "namespace": _NAME,
            "labels": {
                "type": "object",
                "additionalProperties": {"type": "string", "maxLength": 63},
                "maxProperties": MAX_ENTRIES,
            },
            "annotations": {
                "type": "object",
                "additionalProperties": {"type": "string", "maxLength": MAX_CHARACTERS},
                "maxProperties": MAX_ENTRIES,
            },
            "finalizers": {"type": "array", "items": _NAME, "maxItems": 16},
            # Go programs write it as null.
            "creationTimestamp": {"type": "string", "format": "date-time"},
        },
    },
    "Quantity": _INTEGER_OR_STRING | QUANTITY_SCHEMA,
    "IntOrString": _INTEGER_OR_STRING | {"maxLength": 253},
}
"""Definitions that replace those of the API server."""
_LEFT_OUT = ("ephemeralContainers",)
"""Fields of a pod's spec that a template cannot have."""
_RESTART_POLICY: Json = {
    "type": "string",
    "maxLength": 9,
    "x-kubernetes-validations": [
        {
            "rule": "self in ['', 'Never']",
            "message": "a pod of a job is never restarted in its place, but replaced by the "
            "operator, as restartRules and restartLimit say; remove restartPolicy, or set Never",
        }
    ],
}
"""Refuses a policy that the operator cannot honour, in place of silently replacing it."""


def main() -> None:
    """Write the file from the OpenAPI document on the standard input."""
    FILE.write_bytes(render(msgspec.json.decode(sys.stdin.buffer.read())))


def render(document: Json) -> bytes:
    """Return the file's content for an API server's document /openapi/v3/api/v1."""
    served = {
        name.rpartition(".")[2]: schema
        for name, schema in document["components"]["schemas"].items()
    }
    found: dict[str, Json] = {}
    needed = list(ROOTS)
    while needed:
        name = needed.pop()
        if name not in found:
            found[name] = _OWN.get(name) or _definition(name, served[name])
            needed += _references(found[name])
    lines = [f"{_json(name)}:{_json(found[name])}" for name in sorted(found)]
    head = '{"kubernetes":' + _json(document["info"]["version"]) + ',"definitions":{'
    return "\n".join((head, ",\n".join(lines), "}}", "")).encode()


def _definition(name: str, schema: Json) -> Json:
    found = _structural(schema)
    if name == "PodSpec":
        # A master's template needs no containers. ReplicaSpec requires them of a member's template.
        del found["required"]
        for left_out in _LEFT_OUT:
            found["properties"].pop(left_out, None)
        found["properties"]["restartPolicy"] = _RESTART_POLICY
    return found


def _structural(schema: Json) -> Json:
    """Return a schema's names, types and enumerations, with bounds."""
    if "allOf" in schema:
        (schema,) = schema["allOf"]
    if "$ref" in schema:
        return {"$ref": schema["$ref"].rpartition(".")[2]}
    found: Json = {key: schema[key] for key in ("type", "format", "required") if key in schema}
    match schema["type"]:
        case "object" if "additionalProperties" in schema:
            values = _structural(schema["additionalProperties"])
            found |= {"additionalProperties": values, "maxProperties": MAX_ENTRIES}
        case "object":
            found["properties"] = {
                key: _structural(value) for key, value in schema.get("properties", {}).items()
            }
        case "array":
            found |= {"items": _structural(schema["items"]), "maxItems": MAX_ENTRIES}
        case "string" if "enum" in schema:
            # Kubernetes treats an empty text like a field that is not set.
            found["enum"] = [*schema["enum"], ""]
        case "string" if "format" not in schema:
            found["maxLength"] = MAX_CHARACTERS
    return found


def _references(schema: Json) -> Iterator[str]:
    if "$ref" in schema:
        yield schema["$ref"]
    for nested in schema.get("properties", {}).values():
        yield from _references(nested)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from _references(schema[key])


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def embedded(name: str) -> Json:
    """Return the schema of a definition in the file, with its references resolved."""
    return _resolved({"$ref": name}, msgspec.json.decode(FILE.read_bytes())["definitions"])


def _resolved(schema: Json, definitions: dict[str, Json]) -> Json:
    if "$ref" in schema:
        return _resolved(definitions[schema["$ref"]], definitions)
    found = dict(schema)
    for key in ("items", "additionalProperties"):
        if key in schema:
            found[key] = _resolved(schema[key], definitions)
    if "properties" in schema:
        found["properties"] = {
            key: _resolved(value, definitions) for key, value in schema["properties"].items()
        }
    return found


if __name__ == "__main__":
    main()
