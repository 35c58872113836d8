"""Reads a Python script with the modules beside it that it imports, with files and folders.

Packages, which are folders, are not among those modules: they belong into the image.
"""

from __future__ import annotations

import ast
import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path

from elasticjob_client.arguments import check_sequence, check_text
from elasticjob_client.errors import WrongArgument
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
    check_sequence("args", arguments, ["--epochs", "10"])
    for each in arguments:
        check_text("args", each, "10")
    script = {path.name: _content(path, path.name)}
    contents = beside(files, script | local_modules(path, path.parent))
    return Program(path.name, script_command(path.name, arguments), contents)


def beside(
    files: Sequence[str | PathLike[str]], program: Mapping[str, bytes]
) -> Mapping[str, bytes]:
    """Return a program's files and others: files by their names, those of a folder by its name.

    Hidden files and `__pycache__` of folders are left out. The folder `.` has no name.

    Raises:
        WrongArgument: a file cannot be read, is too large, or is there twice; a folder has too many
            files, a link that leads out of it, or a secret that is not named by itself.
    """
    found = dict(program)
    given = [Path(each) for each in files]
    named = {each.resolve() for each in given if not each.is_dir()}
    for each in given:
        for path, name in _paths(each):
            content = _content(path, name)
            if path.resolve() not in named and (secret := _secret_in(content)):
                raise WrongArgument(
                    f"{path} has {secret}, and whoever reads ConfigMaps of the namespace would "
                    "read it; move it out of the folder, and put it into a Secret, or name the "
                    "file by itself, too, if it is meant to be submitted"
                )
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
            if not path.resolve().is_relative_to(given.resolve()):
                raise WrongArgument(
                    f"{path} is a link to {path.resolve()}, which is not in the folder; name that "
                    "file by itself, or replace the link by a copy"
                )
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
        content = _read(path)
    except OSError as error:
        raise WrongArgument(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_FILES_BYTES:
        raise WrongArgument(
            f"{path}: {path.stat().st_size} bytes; submitted files have at most {MAX_FILES_BYTES} "
            f"together; {_REMEDY}"
        )
    return content


def _read(path: Path) -> bytes:
    """Return the first bytes of a regular file, one more than may be submitted.

    Raises:
        OSError: it cannot be read, or is a pipe or a device, which may have no end.
    """
    # Without O_NONBLOCK a pipe would wait for its other end.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read(MAX_FILES_BYTES + 1)


_SECRETS: Mapping[str, re.Pattern[bytes]] = {
    "a private key": re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "the credentials of a kubeconfig": re.compile(
        rb"""(?s)\A(?=.*\bkind['"]?:\s*['"]?Config\b).*\busers['"]?:"""
    ),
    "a cloud's credentials": re.compile(rb"(?i)\baws_secret_access_key\b"),
}


def _secret_in(content: bytes) -> str:
    """Return what secret a file has; empty if none is known."""
    return next((what for what, pattern in _SECRETS.items() if pattern.search(content)), "")


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
                    found[module.name] = _read(module)
                    waiting.append(module)
    return found


def _imported(file: Path) -> Iterator[str]:
    """Yield the first parts of the names of the modules that a file imports."""
    try:
        tree = ast.parse(_read(file))
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
