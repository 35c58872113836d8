"""Compares the fields of a cluster's definitions with the fields of this version. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
from elasticjob_api.meta import Json
from msgspec import inspect as mi

_SHOWN = 5


@dataclass(frozen=True)
class Difference:
    """Fields that only one side has.

    Attributes:
        unserved: paths of fields that the API server would drop.
        unknown: paths of fields that this version lacks.
    """

    unserved: tuple[str, ...]
    unknown: tuple[str, ...]


def difference(types: Mapping[str, type[msgspec.Struct]], schemas: Json) -> Difference:
    """Compare resource types, by kind, with the schemas of an OpenAPI document.

    A kind without a schema is left out.
    """
    ours: set[str] = set()
    theirs: set[str] = set()
    for kind, resource in types.items():
        schema = next((each for name, each in schemas.items() if name.endswith(f".{kind}")), None)
        if schema is None:
            continue
        for part in ("spec", "status"):
            known = next(
                field.type for field in struct_of(resource).fields if field.encode_name == part
            )
            ours.update(_ours(known, f"{kind}.{part}"))
            theirs.update(_theirs(schema["properties"][part], known, f"{kind}.{part}"))
    return Difference(tuple(sorted(ours - theirs)), tuple(sorted(theirs - ours)))


def in_words(paths: tuple[str, ...]) -> str:
    """Return some of the paths, and the number of the others."""
    shown = ", ".join(paths[:_SHOWN])
    if len(paths) > _SHOWN:
        shown += f" and {len(paths) - _SHOWN} more"
    return shown


def struct_of(resource: type[msgspec.Struct]) -> mi.StructType:
    """Return the type information of a resource type."""
    found = mi.type_info(resource)
    assert isinstance(found, mi.StructType)
    return found


def _ours(known: mi.Type, path: str) -> Iterator[str]:
    for name, inner in _children(known):
        yield f"{path}.{name}"
        yield from _ours(inner, f"{path}.{name}")


def _theirs(schema: Json, known: mi.Type, path: str) -> Iterator[str]:
    """Yield the paths of a schema down to pod templates and the like, which have no types here."""
    struct = plain(known)
    if isinstance(struct, mi.DictType):
        yield from _theirs(schema.get("additionalProperties") or {}, struct.value_type, path)
    elif isinstance(struct, mi.ListType):
        yield from _theirs(schema.get("items") or {}, struct.item_type, path)
    elif isinstance(struct, mi.StructType):
        types = dict(_children(struct))
        for name, inner in _merged(schema).get("properties", {}).items():
            yield f"{path}.{name}"
            if name in types:
                yield from _theirs(inner, types[name], f"{path}.{name}")


def _merged(schema: Json) -> Json:
    """Return a schema without the `allOf` that the API server adds to schemas with defaults."""
    for part in schema.get("allOf") or ():
        schema = {**part, **schema}
    return schema


def _children(known: mi.Type) -> Iterator[tuple[str, mi.Type]]:
    found = plain(known)
    if isinstance(found, mi.StructType):
        yield from ((field.encode_name, field.type) for field in found.fields)
    elif isinstance(found, mi.DictType):
        yield from _children(found.value_type)
    elif isinstance(found, mi.ListType):
        yield from _children(found.item_type)


def plain(known: mi.Type) -> mi.Type:
    """Return a type without its description, and without None."""
    if isinstance(known, mi.Metadata):
        return plain(known.type)
    if isinstance(known, mi.UnionType):
        return next(
            (plain(each) for each in known.types if not isinstance(each, mi.NoneType)), known
        )
    return known
