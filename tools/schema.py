"""Builds the CustomResourceDefinitions from the resource types, so that both have one source."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
from elasticjob_api import names
from elasticjob_api.meta import Column, Json, Object, Rule
from msgspec import NODEFAULT
from msgspec import inspect as mi

from tools.pod_template import embedded, with_nested

_BOUNDS = {
    "ge": "minimum",
    "le": "maximum",
    "pattern": "pattern",
    "min_length": "minLength",
    "max_length": "maxLength",
}


def crd(
    resource: type[Object],
    short_name: str,
    columns: tuple[Column, ...],
    *,
    selectable: tuple[str, ...] = (),
    scale: Mapping[str, str] | None = None,
) -> Json:
    """Return the CustomResourceDefinition of a resource type.

    Args:
        resource: the type; its name is the kind.
        short_name: the short name for kubectl.
        columns: the columns of `kubectl get`.
        selectable: the paths of the fields by which clients can filter.
        scale: the paths of the scale subresource. Default: the kind has no such subresource.
    """
    kind = resource.__name__
    plural = f"{kind.lower()}s"
    subresources: Json = {"status": {}}
    if scale:
        subresources["scale"] = dict(scale)
    served: Json = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "subresources": subresources,
        "additionalPrinterColumns": [_column(column) for column in columns],
    }
    if selectable:
        served["selectableFields"] = [{"jsonPath": path} for path in selectable]
    served["schema"] = {"openAPIV3Schema": _root(resource)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short_name],
                "categories": ["all"],
            },
            "versions": [served],
        },
    }


def _column(column: Column) -> Json:
    found: Json = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        found["description"] = column.description
    if column.priority:
        found["priority"] = column.priority
    return found


def _root(resource: type[Object]) -> Json:
    """Return the schema of a whole object. The API server adds the schema of its metadata."""
    schema = _struct(cast(mi.StructType, mi.type_info(resource)))
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        # A rule can name only a field that the schema contains.
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
        "spec": schema["properties"]["spec"],
        "status": _without_defaults(schema["properties"]["status"]),
    }
    schema["required"] = ["spec"]
    if unseen := getattr(resource, "UNSEEN_STATUS", None):
        schema["properties"]["status"]["default"] = unseen
    return schema


def _without_defaults(schema: Json) -> Json:
    """Return the schema without defaults: a status shows only fields that were written."""
    found = {key: value for key, value in schema.items() if key != "default"}
    return with_nested(found, _without_defaults)


def _struct(info: mi.StructType) -> Json:
    properties = {field.encode_name: _field(field) for field in info.fields}
    by_rule = getattr(info.cls, "REQUIRED_BY_RULE", "")
    required = [f.encode_name for f in info.fields if f.required and f.encode_name != by_rule]
    schema: Json = {"description": _summary(info.cls), "type": "object", "properties": properties}
    if required:
        schema["required"] = required
    numbers = set(_whole_numbers(properties))
    rules = [_rule(rule, numbers) for rule in getattr(info.cls, "RULES", ())]
    if rules:
        schema["x-kubernetes-validations"] = rules
    return schema


def _rule(rule: Rule, numbers: set[str]) -> Json:
    found: Json = {"rule": rule.rule}
    read = sorted(numbers.intersection(re.findall(r"\.(\w+)", rule.rule)))
    message = msgspec.json.encode(rule.message).decode()
    if rule.values:
        # With `+` in place of `format`, the API server could not bound the cost of the expression.
        found["messageExpression"] = f"{message}.format([{', '.join(rule.values)}])"
    elif read:
        found["messageExpression"] = message
    else:
        found["message"] = rule.message
    if read:
        # A rule cannot read 3.0 as a whole number. The API server then answers with this message.
        found["message"] = f"{', '.join(read)}: write whole numbers, such as 3, not 3.0"
    if rule.field:
        found["fieldPath"] = rule.field
    if rule.optional_old_self:
        found["optionalOldSelf"] = True
    return found


def _whole_numbers(properties: Json) -> Iterator[str]:
    """Yield the names of our whole numbers in a structure, also of nested ones."""
    for name, schema in properties.items():
        if schema.get("type") == "integer":
            yield name
        elif name != "template":
            for nested in (schema, schema.get("items", {}), schema.get("additionalProperties", {})):
                yield from _whole_numbers(nested.get("properties", {}))


def _field(field: mi.Field) -> Json:
    schema = _schema(field.type)
    default = field.default
    if field.default_factory is not NODEFAULT:
        default = field.default_factory()
    # An empty default is omitted, except for a structure, whose own defaults take effect by it.
    if isinstance(default, msgspec.Struct) or default not in (NODEFAULT, None, "", [], {}):
        schema["default"] = msgspec.to_builtins(default)
    return schema


def _schema(info: mi.Type) -> Json:
    if isinstance(info, mi.Metadata):
        extra = dict(info.extra_json_schema or {})
        if of_kubernetes := extra.pop("$ref", None):
            return embedded(of_kubernetes) | extra
        return _schema(info.type) | extra
    if isinstance(info, mi.UnionType):
        return _union(info)
    bounds = _bounds(info)
    match info:
        case mi.StructType():
            return _struct(info)
        case mi.DictType():
            return _map(info)
        case mi.ListType():
            array: Json = {"type": "array", "items": _schema(info.item_type)}
            if info.max_length is not None:
                array["maxItems"] = info.max_length
            return array | _list_kind(info)
        case mi.LiteralType():
            return {"type": "string", "enum": list(info.values)}
        case mi.StrType():
            return {"type": "string"} | bounds
        case mi.BoolType():
            return {"type": "boolean"}
        case mi.IntType():
            return {"type": "integer", "format": "int64"} | bounds
        case mi.FloatType():
            if info.gt is not None:
                bounds |= {"minimum": info.gt, "exclusiveMinimum": True}
            return {"type": "number"} | bounds
    raise TypeError(f"no schema for {info}")


def _union(info: mi.UnionType) -> Json:
    members = [member for member in info.types if not isinstance(member, mi.NoneType)]
    if len(members) == 1:
        return _schema(members[0])
    if {type(member) for member in members} == {mi.IntType, mi.StrType}:
        # A quantity; the type follows from x-kubernetes-int-or-string.
        return {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    raise TypeError(f"no schema for {info}")


def _map(info: mi.DictType) -> Json:
    limits = {"minProperties": info.min_length, "maxProperties": info.max_length}
    schema: Json = {"type": "object"} | {
        key: value for key, value in limits.items() if value is not None
    }
    if not isinstance(info.value_type, mi.AnyType):
        schema["additionalProperties"] = _schema(info.value_type)
    return schema


def _list_kind(info: mi.ListType) -> Json:
    """Return the list type: conditions are a map by type, so that each writer applies its own."""
    if isinstance(info.item_type, mi.StructType) and info.item_type.cls.__name__ == "Condition":
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return {}


def _bounds(info: mi.Type) -> Json:
    found = {theirs: getattr(info, ours, None) for ours, theirs in _BOUNDS.items()}
    return {key: value for key, value in found.items() if value is not None}


def _summary(cls: type[Any]) -> str:
    return inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("`", "")
