"""The places where the state is stored for the next master: a file, or none.

See `config_map` for the place on Kubernetes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Protocol


class TakenOver(Exception):
    """A newer master of this job has claimed the state, so this one must end."""


class CredentialsRefused(Exception):
    """The API server refuses the account of this master. Only a new pod gets other credentials."""


class StoreFailed(Exception):
    """A write has failed and is tried again."""


class Store(Protocol):
    """A place for the state.

    Attributes:
        shared: another master may use it, so nothing may begin before it is stored.
        pause: the seconds between two writes that no request waits for.
        burst: the number of quick writes that requests wait for. Then there is one in each pause.
        largest: the most bytes; None if there is no limit.
    """

    shared: bool
    pause: float
    burst: float
    largest: int | None

    async def claim(self) -> bytes | None:
        """Claim the state for this master, and return it if any. Raises `StoreFailed`."""

    async def save(self, data: bytes) -> None:
        """Store, all or nothing. Raises `StoreFailed`, `TakenOver` or `CredentialsRefused`."""

    async def is_kept(self) -> bool:
        """Return whether the last saved state still exists. Raises as `save`."""


class NoStore:
    """Stores nothing: the state ends with the process."""

    shared = False
    pause = 1.0
    burst = math.inf
    largest: int | None = None

    async def claim(self) -> bytes | None:
        """Return nothing."""
        return None

    async def save(self, data: bytes) -> None:
        """Do nothing."""

    async def is_kept(self) -> bool:
        """Return True."""
        return True


class FileStore:
    """Stores the state in a file, which every write replaces."""

    shared = False
    pause = 0.25
    burst = math.inf
    largest: int | None = None

    def __init__(self, path: Path) -> None:
        self._path = path

    async def claim(self) -> bytes | None:
        """Return the file's content; None if there is no file."""
        return self._path.read_bytes() if self._path.exists() else None

    async def save(self, data: bytes) -> None:
        """Write another file, then rename it."""
        temporary = self._path.with_name(f".{self._path.name}.new")
        try:
            temporary.write_bytes(data)
            temporary.replace(self._path)
        except OSError as error:
            raise StoreFailed(f"cannot write {self._path}: {error}") from error

    async def is_kept(self) -> bool:
        """Return whether the file exists."""
        return self._path.exists()
