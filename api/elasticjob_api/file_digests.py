"""Digests of a job's submitted files, in its spec.

The files are in a ConfigMap, which users with other rights than the job's author may create or
replace. The job is the author's own, so it carries the digests, and the agent compares them.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path


def encoded(files: Mapping[str, bytes]) -> str:
    """Return the digests of files as the value of an environment variable."""
    return " ".join(
        f"{name}={hashlib.sha256(content).hexdigest()}" for name, content in sorted(files.items())
    )


def difference(digests: str, command: Sequence[str]) -> str | None:
    """Return how the files that a command runs differ from their digests, or None.

    The folder is the one of the first file in the command, since nodes differ in where it is.
    """
    expected = dict(entry.split("=", 1) for entry in digests.split() if "=" in entry)
    paths = (argument for argument in command if posixpath.basename(argument) in expected)
    folder = next((Path(path).parent for path in paths if "/" in path), None)
    if folder is None:
        return f"its command names none of the submitted files, {', '.join(expected)}"
    try:
        # Folders below it have only the files that the job itself lists.
        present = {path.name for path in folder.iterdir() if not path.is_dir()}
        for name in sorted(expected.keys() | present):
            if name not in expected:
                return f"{folder / name} was not submitted with the job"
            if not (folder / name).is_file():
                return f"{name} is missing in {folder}"
            found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
            if found != expected[name]:
                return (
                    f"{folder / name} has SHA-256 {found}, and the job was submitted with "
                    f"{expected[name]}"
                )
    except OSError as error:
        return f"{folder} cannot be read: {error.strerror or error}"
    return None
