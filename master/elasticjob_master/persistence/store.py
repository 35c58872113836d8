"""Where the state is stored for the next master: a ConfigMap, a file, or nowhere.

A stored state belongs to one running master: when a second one writes it, the first one stops.
"""

from __future__ import annotations

import base64
import binascii
import math
from pathlib import Path
from typing import Protocol

import msgspec
from elasticjob_kube.errors import Conflict, KubeError
from elasticjob_kube.resources import CONFIG_MAPS
from elasticjob_kube.session import Kube

_KEY = "state"


class TakenOver(Exception):
    """Another master of this job has written the state: this one must end."""


class StoreFailed(Exception):
    """Writing did not succeed; it is tried again."""


class Store(Protocol):
    """One place for the state.

    Attributes:
        pause: seconds between two writes that nobody waits for.
        burst: writes that are waited for and may come quickly, after which there is one in each pause.
        largest: bytes it takes; None: any number.
    """

    pause: float
    burst: float
    largest: int | None

    async def load(self) -> bytes | None:
        """Return what is stored, or None."""

    async def save(self, data: bytes) -> None:
        """Store, all or nothing. Raises `StoreFailed` or `TakenOver`."""


class NoStore:
    """A state that ends with the process."""

    pause = 1.0
    burst = math.inf
    largest: int | None = None

    async def load(self) -> bytes | None:
        """Return nothing."""
        return None

    async def save(self, data: bytes) -> None:
        """Do nothing."""


class FileStore:
    """A file, replaced as a whole."""

    pause = 0.25
    burst = math.inf
    largest: int | None = None

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> bytes | None:
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


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    binary_data: dict[str, str] | None = None


class ConfigMapStore:
    """The job's ConfigMap; each write names the version it replaces."""

    pause = 1.0
    burst = 8.0
    largest: int | None = 900 * 1024
    """The API server takes 1 MiB of data in a ConfigMap."""

    def __init__(self, kube: Kube, namespace: str, name: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._written: str | None = None
        self._version = ""
        self._sent: set[int] = set()
        """Hashes of what was sent since the last answer: what is found there later may be any of it."""
        self._taken_over = False

    async def load(self) -> bytes | None:
        """Return what the ConfigMap holds. Raises KubeError, also when it is not there: the operator makes it."""
        found = await self._kube.get(CONFIG_MAPS, self._namespace, self._name, as_type=_ConfigMap)
        self._version = found.metadata.resource_version
        self._written = (found.binary_data or {}).get(_KEY)
        try:
            return base64.b64decode(self._written, validate=True) if self._written else None
        except binascii.Error:
            return b"damaged"

    async def save(self, data: bytes) -> None:
        """Replace the state unless another master has replaced it."""
        if self._taken_over:
            raise TakenOver("the state belongs to another master")
        text = base64.b64encode(data).decode()
        try:
            if not await self._write(text):
                await self._check_writer()
                if self._written != text and not await self._write(text):
                    raise StoreFailed("the ConfigMap is being touched by somebody")
        except KubeError as error:
            raise StoreFailed(str(error)) from error

    async def _write(self, text: str) -> bool:
        """Write unless the ConfigMap has changed; return whether it is written."""
        self._sent.add(hash(text))
        body = {"metadata": {"resourceVersion": self._version}, "binaryData": {_KEY: text}}
        try:
            answer = await self._kube.patch(CONFIG_MAPS, self._namespace, self._name, body)
        except Conflict:
            return False
        self._written, self._version = text, answer["metadata"]["resourceVersion"]
        self._sent.clear()
        return True

    async def _check_writer(self) -> None:
        """Find out what has changed the ConfigMap. Raises `TakenOver` if another master has written the state."""
        before = self._written
        await self.load()
        ours = hash(self._written) in self._sent  # a write of this master, whose answer got lost
        if self._written != before and not ours:
            self._taken_over = True
            raise TakenOver(f"ConfigMap {self._namespace}/{self._name} was written by another master")
