"""Stores checkpoints: in a folder that all members share, or at a URL that fsspec knows.

A checkpoint is a folder of files. It is complete when its last, empty file exists: object stores
cannot rename a folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

COMPLETE = "complete"
"""The file that makes a checkpoint complete."""
_COPIED_BYTES = 8 << 20
"""Bytes that are copied between two looks whether to go on."""


class CheckpointStorage(Protocol):
    """A folder of checkpoints.

    All names are relative to it; every method raises OSError when the storage does.
    """

    def complete(self) -> list[str]:
        """Return the names of all complete checkpoints, the newest last."""

    def all(self) -> list[str]:
        """Return the names of all checkpoints, also of incomplete ones, the newest last."""

    def begin(self, name: str) -> None:
        """Make the empty folder of a new checkpoint, and remove the files of an earlier attempt."""

    def address(self, name: str) -> str:
        """Return the path or URL of a checkpoint."""

    def write(self, name: str, file: str, data: bytes) -> None:
        """Write a file of a checkpoint as a whole."""

    def copy(self, name: str, file: str, source: Path, stopped: Callable[[], bool]) -> None:
        """Copy a local file into a checkpoint; raise OSError soon after `stopped` is true."""

    def read(self, name: str, file: str) -> bytes:
        """Read a file of a checkpoint."""

    def size(self, name: str) -> int:
        """Return the bytes of a checkpoint."""

    def remove(self, name: str) -> None:
        """Remove a checkpoint, its last file first, so that a rest is never complete."""


class Folder:
    """A folder that all members share."""

    def __init__(self, path: Path) -> None:
        """Use this folder; create it if it is missing."""
        self._path = path
        path.mkdir(parents=True, exist_ok=True)

    def complete(self) -> list[str]:  # noqa: D102
        return [name for name in self.all() if (self._path / name / COMPLETE).exists()]

    def all(self) -> list[str]:  # noqa: D102
        return sorted(found.name for found in self._path.glob("checkpoint-*") if found.is_dir())

    def begin(self, name: str) -> None:  # noqa: D102
        self.remove(name)
        (self._path / name).mkdir()

    def address(self, name: str) -> str:  # noqa: D102
        return str(self._path / name)

    def write(self, name: str, file: str, data: bytes) -> None:  # noqa: D102
        part = self._path / name / f".{file}-{os.getpid()}.part"
        with part.open("wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        part.replace(self._path / name / file)

    def copy(  # noqa: D102
        self, name: str, file: str, source: Path, stopped: Callable[[], bool]
    ) -> None:
        target = self._path / name / file
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}-{os.getpid()}.part")
        with source.open("rb") as opened, part.open("wb", buffering=0) as written:
            while chunk := opened.read(_COPIED_BYTES):
                _refuse_if(stopped())
                written.write(chunk)
            os.fsync(written.fileno())
        part.replace(target)

    def read(self, name: str, file: str) -> bytes:  # noqa: D102
        return (self._path / name / file).read_bytes()

    def size(self, name: str) -> int:  # noqa: D102
        return sum(file.stat().st_size for file in (self._path / name).rglob("*"))

    def remove(self, name: str) -> None:  # noqa: D102
        (self._path / name / COMPLETE).unlink(missing_ok=True)
        if (self._path / name).exists():
            shutil.rmtree(self._path / name)


class Remote:
    """A URL that fsspec knows."""

    def __init__(self, url: str) -> None:
        """Use this URL.

        Raises ImportError without fsspec, and ValueError for a URL that it does not know.
        """
        import fsspec  # type: ignore[import-not-found, import-untyped, unused-ignore]

        self._files: Any
        self._files, self._root = fsspec.core.url_to_fs(url)
        self._url = url.rstrip("/")

    def complete(self) -> list[str]:  # noqa: D102
        return [
            name for name in self.all() if self._files.exists(f"{self._root}/{name}/{COMPLETE}")
        ]

    def all(self) -> list[str]:  # noqa: D102
        self._files.invalidate_cache()  # others write, too
        if not self._files.exists(self._root):
            return []
        names = (
            str(path).rstrip("/").rpartition("/")[2]
            for path in self._files.ls(self._root, detail=False)
        )
        return sorted(name for name in names if name.startswith("checkpoint-"))

    def begin(self, name: str) -> None:  # noqa: D102
        self.remove(name)
        self._files.makedirs(f"{self._root}/{name}", exist_ok=True)

    def address(self, name: str) -> str:  # noqa: D102
        return f"{self._url}/{name}"

    def write(self, name: str, file: str, data: bytes) -> None:  # noqa: D102
        self._files.pipe_file(f"{self._root}/{name}/{file}", data)

    def copy(  # noqa: D102
        self, name: str, file: str, source: Path, stopped: Callable[[], bool]
    ) -> None:
        _refuse_if(stopped())
        target = f"{self._root}/{name}/{file}"
        self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._files.put_file(str(source), target)

    def read(self, name: str, file: str) -> bytes:  # noqa: D102
        return bytes(self._files.cat_file(f"{self._root}/{name}/{file}"))

    def size(self, name: str) -> int:  # noqa: D102
        return int(self._files.du(f"{self._root}/{name}"))

    def remove(self, name: str) -> None:  # noqa: D102
        path = f"{self._root}/{name}"
        if self._files.exists(f"{path}/{COMPLETE}"):
            self._files.rm_file(f"{path}/{COMPLETE}")
        if self._files.exists(path):
            self._files.rm(path, recursive=True)


def _refuse_if(stopped: bool) -> None:
    if stopped:
        raise OSError("a later checkpoint is written instead")


def open_storage(folder: str | os.PathLike[str]) -> CheckpointStorage:
    """Return the storage at a path, or at a URL with `://`."""
    text = os.fspath(folder)
    return Remote(text) if "://" in text else Folder(Path(text))
