"""A member's folder in memory with the parts of the newest checkpoints.

    ROOT/<store>/<checkpoint>/<part>/…     the files of a part; its name is the rank that saved it
    ROOT/<store>/<checkpoint>/<part>.json  makes the part whole: the number of parts, and its files
    ROOT/<store>/<checkpoint>/complete     all ranks had saved

The store's name is a digest of the storage's folder. The agent reads these files, too: it gives
parts to other members, and writes those that it gets.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from elasticjob_api.limits import MAX_CHECKPOINT_PARTS

from elasticjob._state_choice import Held

NAME = re.compile(r"checkpoint-(\d{4})-(\d{10})-(\d{12})-\d{6}")
"""Series, round and step of a checkpoint."""
_COMPLETE = "complete"
_VIEW = "view"


class StateFolder:
    """The part of the folder that belongs to one storage folder."""

    def __init__(self, root: Path, store: str, *, most_bytes: int) -> None:
        """Use a store's folder, which may not exist, in a root of at most so many bytes."""
        self._root = root
        self._folder = root / store
        self._most_bytes = most_bytes

    def held(self) -> dict[str, Held]:
        """Return what this member holds, by checkpoint."""
        found = {}
        for folder in self._checkpoints():
            manifests = {
                int(path.stem): manifest
                for path in folder.glob("*.json")
                if (manifest := _manifest(path))
            }
            numbers = {manifest["parts"] for manifest in manifests.values()}
            if len(numbers) == 1:
                complete = (folder / _COMPLETE).exists()
                empty = frozenset(part for part, each in manifests.items() if not each["files"])
                found[folder.name] = Held(numbers.pop(), frozenset(manifests), complete, empty)
        return found

    def begin(self, name: str, part: int) -> Path:
        """Return the new folder for the files of a part."""
        path = self._folder / name / str(part)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def finish(self, name: str, part: int, *, parts: int) -> None:
        """Make a part whole; raises OSError if the folder is too large, or the part has a link."""
        size = self._used()
        if size > self._most_bytes:
            raise OSError(f"{size} bytes are in the memory for checkpoints of {self._most_bytes}")
        path = self._folder / name / str(part)
        sizes = {str(each.relative_to(path)): _size(each) for each in _files(path)}
        new = path.with_name(f"{part}.json.new")
        new.write_text(_manifest_text(parts, sizes))
        new.replace(path.with_name(f"{part}.json"))

    def note_empty(self, name: str, empty: Iterable[int], *, parts: int) -> None:
        """Note parts without files, as if they had been fetched."""
        (self._folder / name).mkdir(parents=True, exist_ok=True)
        for part in empty:
            (self._folder / name / f"{part}.json").write_text(_manifest_text(parts, {}))

    def complete(self, name: str) -> None:
        """Note that all ranks have saved a checkpoint."""
        (self._folder / name / _COMPLETE).touch()

    def remove_but(self, kept: Collection[str]) -> None:
        """Remove all checkpoints but these."""
        for folder in self._checkpoints():
            if folder.name not in kept:
                (folder / _COMPLETE).unlink(missing_ok=True)
                shutil.rmtree(folder, ignore_errors=True)

    def remove_part(self, name: str, part: int) -> None:
        """Remove a part that could not be written."""
        path = self._folder / name / str(part)
        path.with_name(f"{part}.json").unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)

    def files(self, name: str) -> dict[str, Path]:
        """Return the files of the parts that this member holds, by their path in a checkpoint.

        Where two ranks have written a file of the same name, the lower rank's counts.
        """
        found: dict[str, Path] = {}
        for part in sorted(self.held()[name].whole):
            found = {**self.part_files(name, part), **found}
        return found

    def part_files(self, name: str, part: int) -> dict[str, Path]:
        """Return the files of one part, by their path in a checkpoint."""
        folder = self._folder / name / str(part)
        return {str(path.relative_to(folder)): path for path in _files(folder)}

    def view(self, name: str, local_rank: int) -> Path:
        """Return a folder with the files of all parts of a checkpoint."""
        parts = sorted(self.held()[name].whole)
        filled = [part for part in parts if self.part_files(name, part)]
        if len(filled) <= 1:
            return self._folder / name / str((filled or parts)[0])
        view = self._root / _VIEW / f"{self._folder.name}-{local_rank}"
        shutil.rmtree(view, ignore_errors=True)
        for path, source in self.files(name).items():
            link = view / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(source)
        return view

    def _used(self) -> int:
        size = 0
        for path in _files(self._root):
            with suppress(FileNotFoundError):  # others rename and remove theirs meanwhile
                size += path.lstat().st_size
        return size

    def _checkpoints(self) -> list[Path]:
        found = self._folder.iterdir() if self._folder.is_dir() else ()
        return sorted(each for each in found if NAME.fullmatch(each.name))


def _files(folder: Path) -> Iterator[Path]:
    for path, _, names in os.walk(folder):
        yield from (Path(path, name) for name in names)


def _size(path: Path) -> int:
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path.name} is not a file, so it cannot be kept in memory")
    return found.st_size


def _manifest_text(parts: int, sizes: Mapping[str, int]) -> str:
    return json.dumps({"parts": parts, "files": sizes})


def _manifest(path: Path) -> dict[str, Any] | None:
    """Return the content of a part's manifest; None if the part is not whole."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        part = path.with_suffix("")
        whole = (
            part.name.isdecimal()
            and int(part.name) < content["parts"] <= MAX_CHECKPOINT_PARTS
            and all(_size(part / name) == size for name, size in content["files"].items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return content if whole else None
