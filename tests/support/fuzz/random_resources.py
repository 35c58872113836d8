"""Generates random custom resources and changes of them, mostly within the schema."""

from __future__ import annotations

import copy
import json
import random
import re
from dataclasses import dataclass
from typing import Any

from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS, Resource

_HOLE = "@deep "
_DEEP = re.compile(rf'"{_HOLE}(\d+)([{{\[])"')
_TEXTS = (
    "",
    "x",
    "job-0",
    "0",
    "-1",
    "None",
    "\u0000",
    "\U0001f600",
    "\u202e",
    "é" * 40,
    "0-4",
    "2Gi",
    "1e300",
    "9" * 40,
)
_NUMBERS = (
    -(2**63),
    -1,
    0,
    1,
    2,
    7,
    100,
    2**31 - 1,
    2**31,
    2**53,
    2**63 - 1,
    2**64,
    10**40,
    0.5,
    -0.0,
    1e308,
)
_TEMPLATE: Json = {
    "spec": {"containers": [{"name": "train", "image": "train:1", "command": ["train"]}]}
}
_PARTS_OF_A_TEMPLATE: tuple[Json, ...] = (
    {"spec": {"serviceAccount": "an-older-name"}},
    {"spec": {"priorityClassName": "nobody-has-made-it"}},
    {"spec": {"imagePullSecrets": [{}]}},
    {"spec": {"hostNetwork": True, "volumes": [{"name": "v", "emptyDir": {}}]}},
    {"spec": {"terminationGracePeriodSeconds": 30.0, "priority": 1.0}},
    {"metadata": {"finalizers": ["example.com/kept"], "labels": {"a": "b"}}},
    {"metadata": {"finalizers": ["no-domain", 7]}},
    {"spec": {"containers": [{"restartPolicy": "Always"}]}},
    {"spec": {"containers": [{"volumeMounts": [{"name": "nowhere", "mountPath": "/v"}]}]}},
    {"spec": {"containers": [{"ports": [{"containerPort": 80.0}]}]}},
    {"spec": {"containers": [{"envFrom": [{"secretRef": {}}]}]}},
    {"spec": {"containers": [{"resources": {"limits": {"memory": 1.0}}}]}},
)
"""What users and older objects write in pod templates, and what no pod can be made of."""
_BASES: dict[Resource, tuple[Json, ...]] = {
    ELASTIC_JOBS: (
        {
            "framework": "custom",
            "replicaSpecs": {"worker": {"replicas": 1, "maxReplicas": 3, "template": _TEMPLATE}},
        },
        {
            "framework": "tensorflow",
            "replicaSpecs": {"worker": {"template": _TEMPLATE}, "ps": {"template": _TEMPLATE}},
            "agent": {"source": "Image"},
        },
    ),
    SCALE_PLANS: (
        {"replicaResourceSpecs": {"worker": {"replicas": 2}}},
        {"removePods": [{"role": "worker", "index": 0}]},
    ),
    SCALE_OUTS: ({"count": 1},),
    SCALE_INS: ({"count": 1}, {"podNames": ["fuzz-0-worker-0"]}),
}


@dataclass
class RandomResources:
    """Draws objects from the schemas of the four kinds.

    Attributes:
        rng: the source of all choices.
        schemas: the schemas of whole objects, by resource.
        jobs: the jobs' names, which requests use.
    """

    rng: random.Random
    schemas: dict[Resource, Json]
    jobs: tuple[str, ...]

    def body(self, resource: Resource, name: str) -> bytes:
        """Return an object to create: a good one with some fields changed."""
        spec = copy.deepcopy(self.rng.choice(_BASES[resource]))
        if resource != ELASTIC_JOBS:
            spec["jobName"] = self.rng.choice(self.jobs)
        elif self.rng.random() < 0.5:
            for part in self.rng.sample(_PARTS_OF_A_TEMPLATE, self.rng.choice((1, 1, 2, 3))):
                self._add_to_template(spec, part)
        for _ in range(self.rng.choice((0, 0, 1, 1, 2, 5))):
            self._mutate(spec, self._part(resource, "spec"))
        metadata: Json = {"name": name}
        if self.rng.random() < 0.1:
            field = self.rng.choice(("labels", "annotations", "ownerReferences"))
            metadata[field] = self.rng.choice(
                ({"a": "x" * 200_000}, {"a": self._junk()}, self._junk())
            )
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            "spec": spec,
        }
        return self._text(body)

    def change(self, resource: Resource, part: str) -> bytes:
        """Return a patch of `spec` or `status`, to be merged or applied."""
        patch: Json = {}
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            self._mutate(patch, self._part(resource, part))
        return self._text({"apiVersion": resource.api_version, "kind": resource.kind, part: patch})

    def _add_to_template(self, spec: Json, part: Json) -> None:
        """Add fields to the template of a role; those of a container to its first one."""
        template = self.rng.choice(list(spec["replicaSpecs"].values()))["template"]
        for name, fields in copy.deepcopy(part).items():
            for container in fields.pop("containers", ()):
                template["spec"]["containers"][0].update(container)
            template.setdefault(name, {}).update(fields)

    def _part(self, resource: Resource, part: str) -> Json:
        schema: Json = self.schemas[resource]["properties"][part]
        return schema

    def _text(self, body: Json) -> bytes:
        """Return the JSON; in a few, some bytes are damaged."""
        data = _DEEP.sub(_deep, json.dumps(body, ensure_ascii=self.rng.random() < 0.5)).encode(
            "utf-8", "replace"
        )
        if self.rng.random() < 0.05:
            position = self.rng.randrange(len(data))
            damage = self.rng.choice((b"", b"\xff", b"\x00", b"{", b'"', rb"\ud800", b"9" * 400))
            data = data[:position] + damage + data[position + self.rng.choice((0, 1, 500)) :]
        return data

    def _mutate(self, value: Json, schema: Json) -> None:
        """Change one field, at a random depth."""
        properties = schema.get("properties") or {}
        if not properties or self.rng.random() < 0.03:
            value[self.rng.choice(("junk", "worker", "0", "x" * 300))] = self._junk()
            return
        name = self.rng.choice(sorted(properties))
        field = properties[name]
        inner = value.get(name)
        if isinstance(inner, dict) and inner and self.rng.random() < 0.7:
            if "additionalProperties" in field:
                chosen = inner[self.rng.choice(sorted(inner))]
                if isinstance(chosen, dict):
                    self._mutate(chosen, field["additionalProperties"])
                    return
            else:
                self._mutate(inner, field)
                return
        value[name] = self._value(field, 0) if self.rng.random() < 0.8 else self._junk()

    def _value(self, schema: Json, depth: int) -> Any:
        """Return a value that the schema allows, if it is easy to find one."""
        rng = self.rng
        if "enum" in schema:
            return rng.choice(schema["enum"])
        if schema.get("x-kubernetes-int-or-string"):
            return rng.choice((0, 1, "100m", "2", "1Gi", "0", "1e3", "999999999999E", 2**62))
        match schema.get("type"):
            case "object" if "additionalProperties" in schema:
                keys = ("worker", "ps", "0", "1", "5000000", "a", "nvidia.com/gpu")
                return {
                    key: self._value(schema["additionalProperties"], depth + 1)
                    for key in rng.sample(keys, rng.randrange(3))
                }
            case "object":
                likely = 1.0 / (1 + depth)
                wanted = schema.get("required", ())
                return {
                    name: self._value(field, depth + 1)
                    for name, field in schema.get("properties", {}).items()
                    if name in wanted or rng.random() < likely * 0.4
                }
            case "array":
                many = rng.choice((0, 1, 1, 2, 3)) if depth or rng.random() < 0.95 else 2000
                return [self._value(schema["items"], depth + 1) for _ in range(many)]
            case "integer":
                edges = [schema[key] for key in ("minimum", "maximum") if key in schema]
                return rng.choice([*edges, 0, 1, 2, 3, 60])
            case "number":
                return rng.choice((0.5, 1, 1e-9))
            case "boolean":
                return rng.random() < 0.5
        if schema.get("format") == "date-time":
            return rng.choice(
                ("2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
            )
        return rng.choice((*_TEXTS, "x" * min(schema.get("maxLength", 100_000), 100_000)))

    def _junk(self) -> Any:
        """Return a value of a wrong type, deep, or huge."""
        rng = self.rng
        return rng.choice(
            (
                None,
                rng.choice(_NUMBERS),
                rng.choice(_TEXTS),
                rng.random() < 0.5,
                [],
                {},
                [rng.choice(_NUMBERS), {}, [rng.choice(_TEXTS)]],
                {rng.choice(_TEXTS): rng.choice(_NUMBERS)},
                f"{_HOLE}{rng.choice((150, 300, 950, 1200, 9000))}{rng.choice('{[')}",
                "x" * rng.choice((10_000, 1_000_000)),
                list(range(rng.choice((100, 50_000)))),
            )
        )


def _deep(hole: re.Match[str]) -> str:
    depth = int(hole[1])
    bracket = hole[2]
    start, end = ('{"a":', "}") if bracket == "{" else ("[", "]")
    return start * depth + "1" + end * depth
