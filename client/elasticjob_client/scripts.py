"""Reads a Python script with the modules beside it that it imports, with files and folders.

Packages, which are folders, are not among those modules: they belong into the image.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path

from elasticjob_client.errors import WrongArgument
from elasticjob_client.job_template import check_texts
from elasticjob_client.manifests import MAX_FILES, MAX_FILES_BYTES, Program, script_command

_NAME = re.compile(r"(?!\.\.)[-._a-zA-Z0-9]{1,200}")
"""Of a file or folder: a ConfigMap with such keys and paths can be mounted."""
_REMEDY = "put it into the image or on a volume (--volume)"


def of_script(
    path: Path, arguments: Sequence[str] = (), files: Sequence[str | PathLike[str]] = ()
) -> Program:
    """Return the program of a Python script, with the modules beside it that it imports.

    Args:
        path: the script's path.
        arguments: the script's arguments.
        files: paths of files and folders that lie beside it in the containers.

    Raises:
        WrongArgument: a file cannot be read, or has a name that is invalid in a ConfigMap; the
            arguments are no texts.
    """
    if isinstance(arguments, str | bytes) or not isinstance(arguments, Sequence):
        raise WrongArgument(
            f"args: {arguments!r:.40} is not a sequence; give one such as ['--epochs', '10']"
        )
    check_texts("args", arguments)
    script = {path.name: _content(path, path.name)}
    contents = beside(files, script | local_modules(path, path.parent))
    return Program(path.name, script_command(path.name, arguments), contents)


def beside(
    files: Sequence[str | PathLike[str]], program: Mapping[str, bytes]
) -> Mapping[str, bytes]:
    """Return a program's files and others: files by their names, those of a folder by its name.

    Hidden files and `__pycache__` of folders are left out. The folder `.` has no name.

    Raises:
        WrongArgument: a file cannot be read, is too large, or is there twice; or a folder has too
            many.
    """
    found = dict(program)
    for each in map(Path, files):
        for path, name in _paths(each):
            content = _content(path, name)
            if found.get(name, content) != content:
                raise WrongArgument(f"files: {name} is there twice; rename one of the files")
            found[name] = content
    return found


def _paths(given: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a path, each with its path beside the program."""
    if not given.is_dir():
        yield given, given.name
        return
    number = 0
    for folder, folders, files in os.walk(given):
        folders[:] = sorted(each for each in folders if not _is_left_out(each))
        for name in sorted(each for each in files if not _is_left_out(each)):
            number += 1
            if number > MAX_FILES:
                raise WrongArgument(
                    f"files: {given} has more than {MAX_FILES} files, which is the most; {_REMEDY}"
                )
            path = Path(folder, name)
            yield path, str(Path(given.name) / path.relative_to(given))


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"


def _content(path: Path, name: str) -> bytes:
    for part in Path(name).parts:
        if not _NAME.fullmatch(part):
            raise WrongArgument(
                f"{part[:80]!r}: the name of a submitted file or folder has only letters, digits, "
                "-, _ and .; rename it"
            )
    try:
        if (size := path.stat().st_size) > MAX_FILES_BYTES:
            raise WrongArgument(
                f"{path}: {size} bytes; submitted files have at most {MAX_FILES_BYTES} together; "
                f"{_REMEDY}"
            )
        return path.read_bytes()
    except OSError as error:
        raise WrongArgument(f"{path} cannot be read: {error.strerror or error}") from error


_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def local_modules(file: Path, folder: Path) -> dict[str, bytes]:
    """Return the modules that a file imports, also by each other, by the names of their files.

    Args:
        file: the file; if it cannot be read or is not Python of this version, it has none.
        folder: the folder in which its imports are found.
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
