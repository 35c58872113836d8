"""Decides what an interpreter in standby imports, and whether it may be kept and used. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MARGIN = 0.1
"""The part of all memory that must stay free beside interpreters in standby."""
_READ_BY_LIBRARIES = (
    "PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "OMP_", "GOMP_", "KMP_", "MKL_",
    "OPENBLAS_", "BLIS_", "TF_CPP_", "GRPC_",
)  # fmt: skip
"""Variables that the interpreter and compiled libraries read when they are loaded."""


@dataclass(frozen=True)
class Memory:
    """The memory of the container, in bytes."""

    total: int
    left: int


@dataclass(frozen=True)
class Report:
    """A message of an interpreter.

    Attributes:
        modules: modules that the program has imported.
        changes: variables that it has changed, and the names of those that it has removed.
        path: its new sys.path.
        reads: the variables that were read while modules were imported in standby.
        problem: why interpreters in standby must not be used for this program.
    """

    modules: tuple[str, ...] = ()
    changes: tuple[Mapping[str, str], Sequence[str]] = field(default=({}, ()))
    path: tuple[str, ...] | None = None
    reads: frozenset[str] | None = None
    problem: str = ""


def report(line: bytes) -> Report:
    """Return the report in a line.

    Raises:
        ValueError: it is none.
    """
    message: Any = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("not a JSON object")
    changed, removed = message.get("changes", ({}, ()))
    if not isinstance(changed, dict):
        raise ValueError("changes must begin with an object")
    path = message.get("path")
    reads = message.get("ready")
    problem = message.get("problem", "")
    return Report(
        modules=_texts(message.get("modules", ())),
        changes=(
            dict(zip(_texts(changed), _texts(changed.values()), strict=True)),
            _texts(removed),
        ),
        path=None if path is None else _texts(path),
        reads=None if reads is None else frozenset(_texts(reads)),
        problem=_texts([problem])[0],
    )


def plan(reports: Iterable[Report]) -> list[dict[str, Any]]:
    """Return what to import, in order, and the changes of the environment before each part."""
    parts = [_part()]
    known: set[str] = set()
    for each in reports:
        changed, removed = each.changes
        if changed or removed or each.path is not None:
            if parts[-1]["modules"]:
                parts.append(_part())
            _merge(parts[-1], each)
        parts[-1]["modules"] += [name for name in each.modules if name not in known]
        known.update(each.modules)
    return [part for part in parts if part["modules"]]


def encoded(parts: Iterable[Mapping[str, Any]]) -> bytes:
    """Return a plan as a message to other agents."""
    return b"\n".join(json.dumps(part).encode() for part in parts)


def decoded(data: bytes) -> list[dict[str, Any]]:
    """Return the plan in a message of another agent.

    Raises:
        ValueError: it is none.
    """
    return plan(report(line) for line in data.splitlines())


def learned(reports: Sequence[Report]) -> int:
    """Return the number of reports up to the last one with modules."""
    return max((at for at, each in enumerate(reports, start=1) if each.modules), default=0)


def difference(
    standby: Mapping[str, str], world: Mapping[str, str], reads: frozenset[str]
) -> str | None:
    """Return a variable of a world that was read with another value in standby, or None.

    Args:
        standby: the environment in which modules were imported.
        world: the environment of a process of the world.
        reads: the variables that were read meanwhile.
    """
    for name in sorted({*standby, *world}):
        was_read = name in reads or name.startswith(_READ_BY_LIBRARIES)
        if was_read and standby.get(name) != world.get(name):
            return name
    return None


def fits(memory: Memory, size: int, count: int) -> bool:
    """Return whether more interpreters fit into the memory that is left, with a margin."""
    return size * count <= memory.left - MARGIN * memory.total


def is_short(memory: Memory) -> bool:
    """Return whether the training needs the memory of the interpreters in standby."""
    return memory.left < MARGIN / 2 * memory.total


def _part() -> dict[str, Any]:
    return {"changes": ({}, []), "path": None, "modules": []}


def _merge(part: dict[str, Any], newer: Report) -> None:
    changed, removed = newer.changes
    all_changed, all_removed = part["changes"]
    kept = {name: value for name, value in all_changed.items() if name not in removed}
    gone = [name for name in all_removed if name not in changed]
    part["changes"] = ({**kept, **changed}, [*gone, *removed])
    if newer.path is not None:
        part["path"] = list(newer.path)


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    texts = tuple(values)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("not a list of texts")
    return texts
