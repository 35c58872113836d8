"""Compares and changes the environment of this process, and records what is read of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

READ_BY_LIBRARIES = (
    "PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "OMP_", "GOMP_", "KMP_", "MKL_",
    "OPENBLAS_", "BLIS_", "TF_CPP_", "GRPC_",
)  # fmt: skip
"""Variables that the interpreter and compiled libraries read when they are loaded."""
reads: set[str] = set()
"""The variables that were read one by one while they were recorded."""


def given() -> dict[str, str]:
    """Return the environment of this process' start, without what Python itself has added."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if pair]
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def difference(
    standby: Mapping[str, str], world: Mapping[str, str], reads: Collection[str]
) -> str | None:
    """Return a variable of a world that was read with another value in standby, or None.

    `reads` are the variables that were read since the modules were imported in standby.
    """
    for name in sorted({*standby, *world}):
        was_read = name in reads or name.startswith(READ_BY_LIBRARIES)
        if was_read and standby.get(name) != world.get(name):
            return name
    return None


class _Recording(type(os.environ)):  # type: ignore[misc]
    """The environment, recording the names of variables that are read one by one."""

    def __getitem__(self, key: Any) -> Any:
        reads.add(os.fsdecode(key) if isinstance(key, (str, bytes)) else "")
        return super().__getitem__(key)


@contextlib.contextmanager
def recording() -> Iterator[None]:
    original = type(os.environ)
    os.environ.__class__ = _Recording
    os.environb.__class__ = _Recording
    yield
    os.environ.__class__ = original
    os.environb.__class__ = original  # type: ignore[assignment]


def changes(old: dict[str, str], new: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the changed variables with their values, and the removed ones."""
    changed = {name: value for name, value in new.items() if old.get(name) != value}
    return changed, [name for name in old if name not in new]


def apply(changes: Any) -> None:
    changed, removed = changes
    os.environ.update(changed)
    for name in removed:
        os.environ.pop(name, None)


def without(variables: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in others}


def replace(variables: dict[str, str]) -> None:
    apply(changes(dict(os.environ), variables))
