"""Brings JSON that somebody else may have written within the bounds of its type, field by field.

The API server holds every write to the same bounds. What is stored may be beyond them all the same:
it was written under older definitions, or by a program whose bounds are not these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from elasticjob_api.meta import Object
from msgspec import inspect as mi

Json = dict[str, Any]
_MAX_NOTES = 10
_DROPPED = object()
_MAX_INTEGER = 2**63


def conform(value: Any, as_type: type[Object], path: str) -> tuple[Json, list[str]]:
    """Return the JSON as its type can be read from it, and a note for each of the first fields that had to change.

    A number is clamped, a text and a list are shortened. Whatever else is not of its type is left
    out, so that its default takes effect: of a map or a list the entry, of a structure the field.

    Args:
        value: the JSON.
        as_type: its type; every field of it has a default.
        path: the name of the field that has this value, for the notes.
    """
    notes: list[str] = []
    fitting = _fit(value, mi.type_info(as_type), path, notes)
    return ({} if fitting is _DROPPED else fitting), notes[:_MAX_NOTES]


def _fit(value: Any, info: mi.Type, path: str, notes: list[str]) -> Any:
    """Return the value within the bounds of the type, or `_DROPPED`."""
    if isinstance(info, mi.Metadata):
        return _fit(value, info.type, path, notes)
    if isinstance(info, mi.UnionType):
        fitting: list[mi.Type] = [member for member in info.types if _is_of_kind(value, member)]
        return _fit(value, fitting[0], path, notes) if fitting else _drop(path, notes)
    if not _is_of_kind(value, info):
        return _drop(path, notes)
    fit = _FITS.get(type(info))
    return fit(value, info, path, notes) if fit else value


def _fit_struct(value: Mapping[str, Any], info: mi.StructType, path: str, notes: list[str]) -> Any:
    known = {field.encode_name for field in info.fields}
    found = {key: entry for key, entry in value.items() if key not in known}  # a newer version's
    for field in info.fields:
        if field.encode_name not in value:
            continue
        fitting = _fit(value[field.encode_name], field.type, f"{path}.{field.encode_name}", notes)
        if fitting is not _DROPPED:
            found[field.encode_name] = fitting
    complete = all(field.encode_name in found for field in info.fields if field.required)
    return found if complete else _drop(path, notes)


def _fit_map(value: Mapping[Any, Any], info: mi.DictType, path: str, notes: list[str]) -> Any:
    if info.max_length is not None and len(value) > info.max_length:
        _note(notes, f"{path}: {len(value)} entries are more than {info.max_length}")
    found: Json = {}
    for key in sorted(value, key=str)[: info.max_length]:
        if _is_exactly(key, info.key_type):
            fitting = _fit(value[key], info.value_type, f"{path}.{key}", notes)
            if fitting is not _DROPPED:
                found[key] = fitting
        else:
            _drop(f"{path}.{str(key)[:_MAX_SHOWN]}", notes)
    return found


def _fit_list(value: list[Any], info: mi.ListType, path: str, notes: list[str]) -> Any:
    if info.max_length is not None and len(value) > info.max_length:
        _note(notes, f"{path}: {len(value)} entries are more than {info.max_length}")
    entries = enumerate(value[: info.max_length])
    fitting = [_fit(entry, info.item_type, f"{path}[{number}]", notes) for number, entry in entries]
    return [entry for entry in fitting if entry is not _DROPPED]


def _fit_text(value: str, info: mi.StrType, path: str, notes: list[str]) -> Any:
    if info.pattern is None and info.max_length is not None and len(value) > info.max_length:
        _note(notes, f"{path}: {len(value)} characters are more than {info.max_length}")
        return value[: info.max_length]
    return value if _is_exactly(value, info) else _drop(path, notes)


def _fit_number(value: float, info: mi.IntType | mi.FloatType, path: str, notes: list[str]) -> Any:
    for bound, outside in ((info.ge, info.ge is not None and value < info.ge),
                           (info.le, info.le is not None and value > info.le)):  # fmt: skip
        if outside:
            _note(notes, f"{path}: {value} is beyond {bound}")
            return bound
    return value


def _fit_literal(value: Any, info: mi.LiteralType, path: str, notes: list[str]) -> Any:
    return value if value in info.values else _drop(path, notes)


_MAX_SHOWN = 60
_FITS: Mapping[type[mi.Type], Callable[..., Any]] = {
    mi.StructType: _fit_struct,
    mi.DictType: _fit_map,
    mi.ListType: _fit_list,
    mi.StrType: _fit_text,
    mi.IntType: _fit_number,
    mi.FloatType: _fit_number,
    mi.LiteralType: _fit_literal,
}


def _is_of_kind(value: Any, info: mi.Type) -> bool:
    """Whether the JSON is of the kind of the type, whatever its bounds."""
    match info:
        case mi.Metadata():
            return _is_of_kind(value, info.type)
        case mi.UnionType():
            return any(_is_of_kind(value, member) for member in info.types)
        case mi.NoneType():
            return value is None
        case mi.StructType() | mi.DictType():
            return isinstance(value, Mapping)
        case mi.ListType():
            return isinstance(value, list)
        case mi.StrType() | mi.LiteralType():
            return isinstance(value, str)
        case mi.BoolType():
            return isinstance(value, bool)
        case mi.IntType():
            return (
                isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_INTEGER
            )
        case mi.FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
    return True


def _is_exactly(value: Any, info: mi.Type) -> bool:
    """Whether a text is within all bounds of its type."""
    match info:
        case mi.Metadata():
            return _is_exactly(value, info.type)
        case mi.LiteralType():
            return value in info.values
        case mi.StrType():
            fits = isinstance(value, str) and (
                info.max_length is None or len(value) <= info.max_length
            )
            fits = fits and (info.min_length is None or len(value) >= info.min_length)
            return fits and (
                info.pattern is None or _pattern(info.pattern).search(value) is not None
            )
    return True


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _drop(path: str, notes: list[str]) -> object:
    _note(notes, f"{path} is not what this field may be")
    return _DROPPED


def _note(notes: list[str], text: str) -> None:
    if len(notes) < _MAX_NOTES:
        notes.append(text)
