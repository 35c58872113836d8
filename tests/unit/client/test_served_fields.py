"""The fields of definitions are compared with the fields of this version."""

from __future__ import annotations

from typing import Any

import msgspec
from elasticjob_client.served_fields import Difference, difference, in_words


class Inner(msgspec.Struct):
    name: str = ""
    template: dict[str, Any] = {}


class Spec(msgspec.Struct):
    roles: dict[str, Inner] = {}
    rules: list[Inner] = []
    size: int | None = None


class Status(msgspec.Struct):
    phase: str = ""


class Job(msgspec.Struct):
    spec: Spec
    status: Status


INNER: dict[str, Any] = {"properties": {"name": {}, "template": {"properties": {"anything": {}}}}}
SPEC: dict[str, Any] = {
    "roles": {"additionalProperties": INNER},
    "rules": {"items": INNER},
    "size": {},
}


def compared(spec: dict[str, Any], status: dict[str, Any]) -> Difference:
    schema = {
        "properties": {"spec": {"properties": spec}, "status": {"allOf": [{"properties": status}]}}
    }
    return difference({"Job": Job}, {"dev.example.v1.Job": schema})


def test_the_same_fields_are_no_difference_and_below_templates_nothing_is_compared() -> None:
    assert compared(SPEC, {"phase": {}}) == Difference((), ())


def test_earlier_definitions_lack_fields_and_later_ones_have_more() -> None:
    inner: dict[str, Any] = {"properties": {"template": {}, "new": {}}}
    assert compared({**SPEC, "roles": {"additionalProperties": inner}}, {}) == Difference(
        ("Job.spec.roles.name", "Job.status.phase"), ("Job.spec.roles.new",)
    )


def test_only_some_of_many_fields_are_named() -> None:
    assert in_words(("a", "b")) == "a, b"
    assert in_words(tuple("abcdefg")) == "a, b, c, d, e and 2 more"
