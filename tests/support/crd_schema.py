"""Checks an object against the schema of its CRD without a server: types, bounds and unknown
fields.

Only the API server evaluates the rules in CEL.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def problems(value: Any, schema: dict[str, Any]) -> list[str]:
    """Return the fields that the API server would reject, with reasons."""
    return list(_problems(value, schema, ""))


def _problems(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield f"{path}: {reprlib.repr(value)} is neither a number nor a text"
            return
    elif kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)  # the API server takes 30.0
    elif kind and (
        not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")
    ):
        yield f"{path}: {reprlib.repr(value)} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    yield from _bounds(value, schema, path)
    if isinstance(value, dict):
        yield from _fields(value, schema, path)
    if isinstance(value, list):
        for position, item in enumerate(value):
            yield from _problems(item, schema.get("items", {}), f"{path}[{position}]")


def _bounds(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get(
        "maximum", value
    ):
        yield f"{path}: {value} is out of bounds"
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{path}: has {len(value)} characters"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{path}: {value!r} does not match {schema['pattern']}"
    if isinstance(value, list) and len(value) > schema.get("maxItems", len(value)):
        yield f"{path}: has {len(value)} items"
    if isinstance(value, dict) and len(value) > schema.get("maxProperties", len(value)):
        yield f"{path}: has {len(value)} fields"


def _fields(value: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}: is required"
    for name, inner in value.items():
        if name in known:
            yield from _problems(inner, known[name], f"{path}.{name}")
        elif "additionalProperties" in schema:
            rest = schema["additionalProperties"]
            if isinstance(rest, dict):
                yield from _problems(inner, rest, f"{path}.{name}")
        elif known and not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{name}: is not known"
