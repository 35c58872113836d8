"""Where the state is stored for the next master: a file or nowhere.

On Kubernetes in a ConfigMap, see `config_map`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Protocol


class TakenOver(Exception):
    """A newer master of this job has claimed the state: this one must end."""


class CredentialsRefused(Exception):
    """The API server does not know this master's account any more.

    Only a new pod gets other credentials.
    """


class StoreFailed(Exception):
    """Writing did not succeed; it is tried again."""


class Store(Protocol):
    """One place for the state.

    Attributes:
        shared: whether another master can be at it, so that nothing may be begun before it is stored.
        pause: seconds between two writes that nobody waits for.
        burst: writes that are waited for and may come quickly, after which there is one in each pause.
        largest: bytes it takes; None: any number.
    """

    shared: bool
    pause: float
    burst: float
    largest: int | None

    async def claim(self) -> bytes | None:
        """Make the state this master's, and return what is stored, or None.

        Raises `StoreFailed`.
        """

    async def save(self, data: bytes) -> None:
        """Store, all or nothing. Raises `StoreFailed`, `TakenOver` or `CredentialsRefused`."""

    async def is_kept(self) -> bool:
        """Return whether what was last saved is still there. Raises as `save`."""


class NoStore:
    """A state that ends with the process."""

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
        """Return that it is."""
        return True


class FileStore:
    """A file, replaced as a whole."""

    shared = False
    pause = 0.25
    burst = math.inf
    largest: int | None = None

    def __init__(self, path: Path) -> None:
        self._path = path

    async def claim(self) -> bytes | None:
        """Return the file's content, or None when there is none."""
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
        """Return whether there is a file."""
        return self._path.exists()
