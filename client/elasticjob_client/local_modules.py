"""Finds the modules beside a Python file that it imports, which no image has.

Packages, which are folders, are not among them: they belong into the image.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def local_modules(file: Path, folder: Path) -> dict[str, bytes]:
    """Return the modules that a file imports, also by each other, by the names of their files.

    Args:
        file: the file; if it cannot be read or is not Python of this version, it has none.
        folder: where its imports are found.
    """
    found: dict[str, bytes] = {}
    waiting = [file]
    while waiting:
        for name in _imported(waiting.pop()):
            module = folder / f"{name}.py"
            if module.name not in found and module.is_file():
                with suppress(OSError):
                    found[module.name] = module.read_bytes()
                    waiting.append(module)
    return found


def _imported(file: Path) -> Iterator[str]:
    """Yield the first parts of the names of the modules that a file imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            first = name.partition(".")[0]
            if _MODULE.fullmatch(first):
                yield first
