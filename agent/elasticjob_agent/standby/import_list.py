"""Decides what an interpreter in standby imports, and whether it may be kept and used. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

MARGIN = 0.1
"""The part of all memory that must stay free beside interpreters in standby."""
_MOST_CHILDREN = 64


@dataclass(frozen=True)
class Memory:
    """The memory of the container, in bytes.

    Attributes:
        total: its limit.
        left: the rest of it.
        together: where it is exceeded, the kernel kills all processes of the container together,
            and not those in standby first.
        limited: it is the container's own, and not all of the machine's, which others use, too.
    """

    total: int
    left: int
    together: bool = False
    limited: bool = True


@dataclass(frozen=True)
class Child:
    """A process that torchrun starts.

    Attributes:
        command: its command, whose second word is -u.
        environment: what its libraries read at their start, as far as it differs from torchrun's.
        count: the number of such processes.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    count: int


@dataclass(frozen=True)
class Report:
    """A message of an interpreter.

    Attributes:
        modules: modules that the program has imported.
        changes: variables that it has changed, and the names of those that it has removed.
        path: its new sys.path.
        child: what it has started, if it is torchrun.
        index: the index of the reporting process among those that torchrun starts; None for any
            other.
        ready: it has imported in standby all that it is to import.
        problem: why interpreters in standby must not be used for this program.
    """

    modules: tuple[str, ...] = ()
    changes: tuple[Mapping[str, str], Sequence[str]] = field(default=({}, ()))
    path: tuple[str, ...] | None = None
    child: Child | None = None
    index: int | None = None
    ready: bool = False
    problem: str = ""


def report(line: bytes) -> Report:
    """Return the report in a line; raises ValueError if it is none."""
    message: Any = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("not a JSON object")
    changed, removed = message.get("changes", ({}, ()))
    path = message.get("path")
    child = message.get("child")
    index = message.get("index")
    return Report(
        modules=_texts(message.get("modules", ())),
        changes=(_variables(changed), _texts(removed)),
        path=None if path is None else _texts(path),
        child=None if child is None else _child(child),
        index=None if index is None else int(index),
        ready="ready" in message,
        problem=_texts([message.get("problem", "")])[0],
    )


@dataclass(frozen=True)
class ImportList:
    """What to import.

    Attributes:
        parts: modules in order, and the changes of the environment before each part.
        child: what torchrun starts then, if it has been started already.
        parts_of_child: what each of these imports.
    """

    parts: list[dict[str, Any]] = field(default_factory=list)
    child: Child | None = None
    parts_of_child: list[dict[str, Any]] = field(default_factory=list)

    def content(self) -> dict[str, Any]:
        """Return it as an interpreter reads it."""
        child = None if self.child is None else asdict(self.child)
        return {"imports": self.parts, "child": child, "parts_of_child": self.parts_of_child}

    def __add__(self, later: ImportList) -> ImportList:
        """Return this list and what a later one adds."""
        return ImportList(
            [*self.parts, *later.parts],
            later.child or self.child,
            [*self.parts_of_child, *later.parts_of_child],
        )

    def without_child(self) -> ImportList:
        """Return what torchrun itself imports."""
        return ImportList(self.parts)


def of(reports: Sequence[Report]) -> ImportList:
    """Return what the program that has reported this has imported."""
    child = next((each.child for each in reversed(reports) if each.child is not None), None)
    own = _parts(each for each in reports if each.index is None)
    return ImportList(own, child, _parts(each for each in reports if each.index == 0))


def encoded(imported: ImportList) -> bytes:
    """Return an import list as a message to other agents."""
    lines = [*imported.parts, *({**part, "index": 0} for part in imported.parts_of_child)]
    if imported.child is not None:
        lines.append({"child": asdict(imported.child)})
    return b"\n".join(json.dumps(line).encode() for line in lines)


def decoded(data: bytes) -> ImportList:
    """Return the import list in a message of another agent; raises ValueError if it is none."""
    return of([report(line) for line in data.splitlines()])


def _parts(reports: Iterable[Report]) -> list[dict[str, Any]]:
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


def learned(reports: Sequence[Report]) -> int:
    """Return the number of reports up to the last one with modules."""
    return max((at for at, each in enumerate(reports, start=1) if each.modules), default=0)


def fits(memory: Memory, size: int, count: int) -> bool:
    """Return whether more interpreters fit into the memory that is left, with a margin."""
    room = size * count * (2 if memory.together else 1)
    return room <= memory.left - MARGIN * memory.total


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


def _variables(values: Any) -> dict[str, str]:
    if not isinstance(values, dict):
        raise ValueError("not an object")
    return dict(zip(_texts(values), _texts(values.values()), strict=True))


def _child(values: Any) -> Child:
    if not isinstance(values, dict):
        raise ValueError("not an object")
    count = int(values.get("count", 0))
    command = _texts(values.get("command", ()))
    if not 0 < count <= _MOST_CHILDREN or len(command) < 3:
        raise ValueError("not a process that torchrun starts")
    return Child(command, _variables(values.get("environment")), count)
