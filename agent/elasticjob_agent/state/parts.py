"""Reads the names and manifests of the parts of checkpoints, which other programs write. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from elasticjob_api.limits import MAX_CHECKPOINT_PARTS

MAX_FILES = 10_000
MAX_MANIFEST_BYTES = 1 << 20
_MAX_PATH = 1024
_MAX_DEPTH = 16
_STORE = re.compile(r"[0-9a-f]{8,64}")
_CHECKPOINT = re.compile(r"checkpoint-[0-9][0-9-]{0,99}")
_PART = re.compile(r"0|[1-9][0-9]{0,3}")


class PartName(NamedTuple):
    """Names one part: the folders in which its files are."""

    store: str
    checkpoint: str
    part: str


@dataclass(frozen=True)
class Manifest:
    """What belongs to a part: its files' sizes by path, and how many parts its checkpoint has."""

    parts: int
    files: Mapping[str, int]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(self.files.values())

    def encode(self) -> bytes:
        """Return the manifest as the JSON that `manifest` reads."""
        return json.dumps({"parts": self.parts, "files": self.files}).encode()


def part_name(store: object, checkpoint: object, part: object) -> PartName:
    """Return the name of a part; raises ValueError if one of the three is not such a name."""
    for what, value, pattern in (
        ("store", store, _STORE),
        ("checkpoint", checkpoint, _CHECKPOINT),
        ("part", part, _PART),
    ):
        if not (isinstance(value, str) and pattern.fullmatch(value)):
            raise ValueError(f"{what} must match {pattern.pattern}, not {str(value)[:100]!r}")
    return PartName(str(store), str(checkpoint), str(part))


def manifest(text: bytes, name: PartName) -> Manifest:
    """Return the manifest of a part.

    Raises ValueError if it is too large, is no manifest, or names files outside of the part.
    """
    if len(text) > MAX_MANIFEST_BYTES:
        raise ValueError(f"the manifest has {len(text)} bytes; at most {MAX_MANIFEST_BYTES} are")
    try:
        content: Any = json.loads(text)
    except RecursionError as error:
        raise ValueError("the manifest is nested too deeply") from error
    parts = content.get("parts") if isinstance(content, dict) else None
    if type(parts) is not int or not int(name.part) < parts <= MAX_CHECKPOINT_PARTS:
        raise ValueError(
            f"parts must be a number above {name.part}, and at most {MAX_CHECKPOINT_PARTS}"
        )
    files = content.get("files")
    if not isinstance(files, dict) or len(files) > MAX_FILES:
        raise ValueError(f"files must be an object with at most {MAX_FILES} files")
    for path, size in files.items():
        if not _stays_inside(path):
            raise ValueError(f"{path[:100]!r} is not the path of a file in a part")
        if type(size) is not int or not 0 <= size < 1 << 63:
            raise ValueError(f"{path[:100]!r} must have a number of bytes, not {size!r:.100}")
    return Manifest(parts, files)


def _stays_inside(path: str) -> bool:
    components = path.split("/")
    return (
        len(path) <= _MAX_PATH
        and path.isprintable()
        and len(components) <= _MAX_DEPTH
        and all(
            component not in ("", ".", "..") and len(component.encode()) <= 255
            for component in components
        )
    )
