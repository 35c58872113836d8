"""Reads and writes whole parts of checkpoints in an agent's folder in memory.

    ROOT/<store>/<checkpoint>/<part>/…     the files of a part
    ROOT/<store>/<checkpoint>/<part>.json  its manifest; makes the part whole
    ROOT/<store>/<checkpoint>/complete     all processes of the world had saved

The training process writes there, too, and removes old checkpoints.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from elasticjob_agent.state import below
from elasticjob_agent.state.parts import MAX_MANIFEST_BYTES, Manifest, PartName, manifest

CHUNK_BYTES = 1 << 20
_INCOMING = "incoming"
_COMPLETE = "complete"
_KEPT_COPIES = 2
"""Checkpoints of a store of which copies for other members are kept."""


class StateFolder:
    """The folder of one agent, of at most `most_bytes`."""

    def __init__(self, root: Path, most_bytes: int) -> None:
        """Use a folder, and remove what an earlier agent has left unfinished in it."""
        self.most_bytes = most_bytes
        self._root = root
        self._copies: dict[PartName, int] = {}
        self._arriving: dict[PartName, int] = {}
        below.remove(root, (_INCOMING,))

    def manifest(self, name: PartName) -> Manifest:
        """Return the manifest of a part; raises OSError or ValueError if it is not whole."""
        with os.fdopen(below.file(self._root, _manifest_path(name)), "rb") as file:
            return manifest(file.read(MAX_MANIFEST_BYTES + 1), name)

    def has(self, name: PartName) -> bool:
        """Return whether a part is here."""
        return below.exists(self._root, _manifest_path(name))

    def is_arriving(self, name: PartName) -> bool:
        """Return whether another member sends a part at this moment."""
        return name in self._arriving

    def is_complete(self, name: PartName) -> bool:
        """Return whether all processes had saved the checkpoint of a part."""
        return below.exists(self._root, (*name[:2], _COMPLETE))

    def note_complete(self, name: PartName) -> None:
        """Note that all processes had saved the checkpoint of a part."""
        os.close(below.file(self._root, (*name[:2], _COMPLETE), os.O_WRONLY | os.O_CREAT))

    def chunks(self, name: PartName, content: Manifest) -> Iterator[bytes]:
        """Yield the bytes of a part's files; raises OSError if one is not as the manifest says."""
        for path, size in content.files.items():
            opened = below.file(self._root, (*name, *path.split("/")))
            with os.fdopen(opened, "rb", buffering=0) as file:
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
        folder = (_INCOMING, secrets.token_hex(8))
        self._arriving[name] = content.size if copy else 0
        try:
            incoming = Incoming(self._root, folder, content)
            yield incoming
            incoming.close()
            self._finish(folder, name, content)
            if copy:
                self._copies[name] = content.size
        finally:
            del self._arriving[name]
            below.remove(self._root, folder)

    def _finish(self, folder: tuple[str, str], name: PartName, content: Manifest) -> None:
        written = (folder[0], f"{folder[1]}.json")
        below.remove(self._root, name)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(below.file(self._root, written, flags), "wb") as file:
                file.write(content.encode())
            below.move(self._root, folder, name)
            below.move(self._root, written, _manifest_path(name))
        finally:
            below.remove(self._root, written)

    def _make_room(self, name: PartName, size: int) -> None:
        """Remove copies of the store's old checkpoints.

        Raises OSError if this checkpoint is old, or the copy does not fit into half of the folder.
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
        below.remove(self._root, _manifest_path(name))
        below.remove(self._root, name)
        checkpoint = name[:2]
        with (
            suppress(OSError),
            below.folder(self._root, checkpoint) as folder,
            os.scandir(folder) as entries,
        ):
            if all(entry.name == _COMPLETE for entry in entries):
                below.remove(self._root, checkpoint)
        del self._copies[name]

    def _used(self) -> int:
        used = 0
        for folder, _, names in os.walk(self._root):
            for name in names:
                with suppress(FileNotFoundError):  # the training process has removed it meanwhile
                    used += Path(folder, name).lstat().st_size
        return used


def _manifest_path(name: PartName) -> tuple[str, str, str]:
    return name.store, name.checkpoint, f"{name.part}.json"


class Incoming:
    """Writes the files of a part, from chunks of any size."""

    def __init__(self, root: Path, folder: tuple[str, ...], content: Manifest) -> None:
        """Create the files, in a new folder below the root, with their sizes: they count at once.

        Raises OSError if a file exists, or cannot be created.
        """
        self._root = root
        with below.folder(root, folder, make=True):
            pass  # also a part without files is a folder
        self._left: list[tuple[tuple[str, ...], int]] = []
        for path, size in content.files.items():
            parts = (*folder, *path.split("/"))
            opened = below.file(root, parts, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(opened, "wb", buffering=0) as file:
                file.truncate(size)
            if size:
                self._left.append((parts, size))
        self._left.reverse()
        self._offset = 0

    def write(self, data: bytes) -> None:
        """Write the next bytes; raises OSError if there are more than the manifest says."""
        view = memoryview(data)
        while view:
            if not self._left:
                raise OSError("more bytes arrived than the manifest says")
            path, size = self._left[-1]
            opened = below.file(self._root, path, os.O_WRONLY)
            with os.fdopen(opened, "wb", buffering=0) as file:
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
