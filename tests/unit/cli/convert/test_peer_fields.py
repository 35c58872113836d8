"""Tests that names of fields and options are found in the forms in which peers define them."""

from __future__ import annotations

from typing import Any

import yaml

from tools.peer_fields import Source, names


def field(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object."""
    return {"type": "object", "properties": properties}


def test_a_crd_has_a_path_for_each_field_and_one_for_a_type_of_kubernetes() -> None:
    template = field(spec=field(initContainers={"type": "array"}, hostname={"type": "string"}))
    group = field(replicas={"type": "integer"}, template=template)
    pods = {"type": "array", "items": field(id={"type": "integer"})}
    env = {"type": "array", "items": field(name={"type": "string"}, valueFrom=field())}
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    groups = {"type": "object", "additionalProperties": group}
    spec = field(groups=groups, pods=pods, env=env, labels=texts, policy=field(queue={}))
    schema = {"openAPIV3Schema": field(spec=spec, status=field(phase={}))}
    definition = {
        "spec": {
            "group": "a.example",
            "names": {"kind": "Job"},
            "versions": [{"name": "v1", "schema": schema}],
        }
    }
    assert names(yaml.safe_dump(definition), Source("", "crd")) == {
        "Job a.example/v1": [
            "spec.env",
            "spec.groups.<name>.replicas",
            "spec.groups.<name>.template",
            "spec.labels",
            "spec.pods[].id",
            "spec.policy.queue",
        ]
    }


def test_options_have_dashes_and_say_whether_they_have_a_value() -> None:
    text = """
    parser.add_argument("--one_word", "--one-word", type=int)
    parser.add_argument(
        "-f",
        "--flag",
        action="store_true",
    )
    parser.add_argument("script")
    """
    found = names(text, Source("", "options", "launcher"))
    assert found == {"launcher": ["--flag", "--one-word VALUE"]}


def test_go_types_have_the_paths_of_their_json_names() -> None:
    text = """
type FrameworkSpec struct {
	Tasks []*Task `json:"tasks"`
}
type Task struct {
	// A comment.
	Pod core.PodTemplateSpec `json:"pod"`
}
"""
    found = names(text, Source("", "go", "Framework"))
    assert found == {"Framework": ["spec.tasks[].pod"]}
