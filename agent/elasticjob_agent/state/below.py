"""Opens, makes and removes files below a folder in which the training process may make links.

No link is followed: each folder of a path is opened from the one before.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def folder(root: Path, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """Yield the descriptor of a folder below the root; with `make` it is made if it is missing.

    Raises OSError if it does not exist, or a part of its path is a link or a file.
    """
    opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=opened)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            inner = os.open(part, flags, dir_fd=opened)
            os.close(opened)
            opened = inner
        yield opened
    finally:
        os.close(opened)


def file(root: Path, parts: Sequence[str], flags: int = os.O_RDONLY) -> int:
    """Open a regular file below the root; with O_CREAT its folders are made, too.

    Raises OSError if it cannot be opened, is no regular file, or a part of its path is a link.
    """
    *folders, name = parts
    with folder(root, folders, make=bool(flags & os.O_CREAT)) as within:
        # Without O_NONBLOCK a pipe would wait for its other end.
        opened = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=within)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(f"{name!r} is not a regular file")
    return opened


def exists(root: Path, parts: Sequence[str]) -> bool:
    """Return whether there is a regular file of this path below the root."""
    try:
        os.close(file(root, parts))
    except OSError:
        return False
    return True


def remove(root: Path, parts: Sequence[str]) -> None:
    """Remove a file, a link or a folder with all that it contains, if it exists."""
    *folders, name = parts
    with suppress(OSError), folder(root, folders) as within:
        try:
            os.unlink(name, dir_fd=within)
        except IsADirectoryError:
            shutil.rmtree(name, ignore_errors=True, dir_fd=within)


def move(root: Path, source: Sequence[str], target: Sequence[str]) -> None:
    """Move a file or folder; the folders of the target are made, and a target is replaced.

    Raises OSError if it cannot be moved, or a part of a path is a link.
    """
    *source_folders, old = source
    *target_folders, new = target
    with folder(root, source_folders) as left, folder(root, target_folders, make=True) as right:
        os.rename(old, new, src_dir_fd=left, dst_dir_fd=right)
