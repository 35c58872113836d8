"""Reads and writes whole parts of checkpoints in an agent's folder in memory.

    ROOT/<store>/<checkpoint>/<part>/…     the files of a part
    ROOT/<store>/<checkpoint>/<part>.json  its manifest; makes the part whole
    ROOT/<store>/<checkpoint>/complete     all processes of the world had saved

The training process writes there, too, and removes old checkpoints.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from elasticjob_agent.state.parts import MAX_MANIFEST_BYTES, Manifest, PartName, manifest

CHUNK_BYTES = 1 << 20
_KEPT_COPIES = 2
"""Checkpoints of a store of which copies for other members are kept."""


class StateFolder:
    """The folder of one agent.

    Attributes:
        most_bytes: its greatest size.
    """

    def __init__(self, root: Path, most_bytes: int) -> None:
        """Use a folder, and remove what an earlier agent has left unfinished in it."""
        self.most_bytes = most_bytes
        self._root = root
        self._incoming = root / "incoming"
        self._copies: dict[PartName, int] = {}
        self._arriving: dict[PartName, int] = {}
        shutil.rmtree(self._incoming, ignore_errors=True)

    def manifest(self, name: PartName) -> Manifest:
        """Return the manifest of a part.

        Raises:
            OSError, ValueError: the part is not here, or is not whole.
        """
        path = self._path(name).with_name(f"{name.part}.json")
        with os.fdopen(self._open(path.relative_to(self._root)), "rb") as file:
            return manifest(file.read(MAX_MANIFEST_BYTES + 1), name)

    def has(self, name: PartName) -> bool:
        """Return whether a part is here."""
        return self._path(name).with_name(f"{name.part}.json").exists()

    def is_arriving(self, name: PartName) -> bool:
        """Return whether another member sends a part at this moment."""
        return name in self._arriving

    def is_complete(self, name: PartName) -> bool:
        """Return whether all processes had saved the checkpoint of a part."""
        return (self._path(name).parent / "complete").exists()

    def note_complete(self, name: PartName) -> None:
        """Note that all processes had saved the checkpoint of a part."""
        (self._path(name).parent / "complete").touch()

    def chunks(self, name: PartName, content: Manifest) -> Iterator[bytes]:
        """Yield the bytes of a part's files.

        Raises:
            OSError: a file is not as the manifest says, or was removed meanwhile.
        """
        for path, size in content.files.items():
            with os.fdopen(self._open(Path(*name, path)), "rb", buffering=0) as file:
                left = size
                while left:
                    data = file.read(min(left, CHUNK_BYTES))
                    if not data:
                        raise OSError(f"{path!r} is shorter than the {size} bytes of its manifest")
                    left -= len(data)
                    yield data

    @contextmanager
    def receive(self, name: PartName, content: Manifest, *, copy: bool) -> Iterator[Incoming]:
        """Yield an object that writes a part; the part exists after the block, or not at all.

        Args:
            name: the name of the part.
            content: its manifest.
            copy: another member sends it, and has it, too. Copies take at most half of the folder,
                so that this member can save.

        Raises:
            OSError: there is no room, or the part did not arrive as a whole.
        """
        if name in self._arriving:
            raise OSError("the part is arriving already")
        if copy:
            self._make_room(name, content.size)
        used = self._used()
        if used + content.size > self.most_bytes:
            raise OSError(
                f"the part has {content.size} bytes, and {used} of {self.most_bytes} are in use"
            )
        self._incoming.mkdir(exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=self._incoming))
        self._arriving[name] = content.size if copy else 0
        try:
            incoming = Incoming(folder, content)
            yield incoming
            incoming.close()
            self._finish(folder, name, content)
            if copy:
                self._copies[name] = content.size
        finally:
            del self._arriving[name]
            shutil.rmtree(folder, ignore_errors=True)

    def _finish(self, folder: Path, name: PartName, content: Manifest) -> None:
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        written = folder.with_name(f"{folder.name}.json")
        written.write_bytes(content.encode())
        try:
            folder.rename(path)
            written.rename(path.with_name(f"{name.part}.json"))
        finally:
            written.unlink(missing_ok=True)

    def _make_room(self, name: PartName, size: int) -> None:
        """Remove copies of the store's old checkpoints.

        Raises:
            OSError: this checkpoint is old, or the copy does not fit into half of the folder.
        """
        self._copies = {each: bytes_ for each, bytes_ in self._copies.items() if self.has(each)}
        of_store = [each for each in self._copies if each.store == name.store]
        kept = sorted({each.checkpoint for each in (*of_store, name)})[-_KEPT_COPIES:]
        if name.checkpoint not in kept:
            raise OSError(f"{_KEPT_COPIES} newer checkpoints are here")
        for each in of_store:
            if each.checkpoint not in kept:
                self._remove(each)
        used = sum(self._copies.values()) + sum(self._arriving.values())
        if used + size > self.most_bytes // 2:
            raise OSError(
                f"the part has {size} bytes, and {used} of the {self.most_bytes // 2} for copies "
                "of other members' parts are in use"
            )

    def _remove(self, name: PartName) -> None:
        path = self._path(name)
        path.with_name(f"{name.part}.json").unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        if all(each.name == "complete" for each in path.parent.iterdir()):
            shutil.rmtree(path.parent, ignore_errors=True)
        del self._copies[name]

    def _used(self) -> int:
        used = 0
        for folder, _, names in os.walk(self._root):
            for name in names:
                with suppress(FileNotFoundError):  # the training process has removed it meanwhile
                    used += Path(folder, name).lstat().st_size
        return used

    def _path(self, name: PartName) -> Path:
        return self._root.joinpath(*name)

    def _open(self, path: Path) -> int:
        """Open a file below the root, through no link: the training process may have made one."""
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for component in path.parent.parts:
                inner = os.open(component, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = inner
            file = os.open(path.name, os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        finally:
            os.close(folder)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(f"{path.name!r} is not a regular file")
        return file


class Incoming:
    """Writes the files of a part, from chunks of any size."""

    def __init__(self, folder: Path, content: Manifest) -> None:
        """Create the files with their sizes, so that they count at once."""
        for path, size in content.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with (folder / path).open("xb") as file:
                file.truncate(size)
        self._left = [(folder / path, size) for path, size in content.files.items() if size]
        self._left.reverse()
        self._offset = 0

    def write(self, data: bytes) -> None:
        """Write the next bytes.

        Raises:
            OSError: there are more than the manifest says.
        """
        view = memoryview(data)
        while view:
            if not self._left:
                raise OSError("more bytes arrived than the manifest says")
            path, size = self._left[-1]
            with path.open("r+b", buffering=0) as file:
                file.seek(self._offset)
                written = file.write(view[: size - self._offset])
            view = view[written:]
            self._offset += written
            if self._offset == size:
                self._left.pop()
                self._offset = 0

    def close(self) -> None:
        """Raise OSError if bytes are missing."""
        if self._left:
            raise OSError("the transfer ended early")
