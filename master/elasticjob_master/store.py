"""Where the state is kept between two masters, and when it is written.

The first change is written at once, later ones together: soon when somebody waits for it, else after a pause. A stored
state belongs to one running master: a second one that takes over makes the first one stop.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec
from elasticjob_kube.errors import Conflict, KubeError
from elasticjob_kube.resources import CONFIG_MAPS
from elasticjob_kube.session import Kube

from elasticjob_master.core.pace import Pace
from elasticjob_master.core.state import Encoded, TooLarge

log = logging.getLogger(__name__)

_KEY = "state"
_ANSWER_SECONDS = 8.0
_RETRY_SECONDS = 1.0


class NotStored(Exception):
    """The state could not be stored in time; the caller tries again later."""


class TakenOver(Exception):
    """Another master of this job has written the state: this one must end."""


class Failed(Exception):
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
        """Store, all or nothing. Raises `Failed` or `TakenOver`."""


class NoStore:
    """A state that ends with the process."""

    pause = 1.0
    burst = math.inf
    largest: int | None = None

    async def load(self) -> bytes | None:
        """Return nothing."""
        return None

    async def save(self, data: bytes) -> None:
        """Forget it."""


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
        """Write beside it, then rename."""
        beside = self._path.with_name(f".{self._path.name}.new")
        try:
            beside.write_bytes(data)
            beside.replace(self._path)
        except OSError as error:
            raise Failed(f"cannot write {self._path}: {error}") from error


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
        """Replace the state if nobody else has."""
        if self._taken_over:
            raise TakenOver("the state belongs to another master")
        text = base64.b64encode(data).decode()
        try:
            if not await self._write(text):
                await self._look()
                if self._written != text and not await self._write(text):
                    raise Failed("the ConfigMap is being touched by somebody")
        except KubeError as error:
            raise Failed(str(error)) from error

    async def _write(self, text: str) -> bool:
        """Write unless somebody has touched the ConfigMap; tell whether it is written."""
        self._sent.add(hash(text))
        body = {"metadata": {"resourceVersion": self._version}, "binaryData": {_KEY: text}}
        try:
            answer = await self._kube.patch(CONFIG_MAPS, self._namespace, self._name, body)
        except Conflict:
            return False
        self._written, self._version = text, answer["metadata"]["resourceVersion"]
        self._sent.clear()
        return True

    async def _look(self) -> None:
        """Find out who has touched the ConfigMap. Raises `TakenOver` if another master has written it."""
        before = self._written
        await self.load()
        ours = hash(self._written) in self._sent  # a write of this master, whose answer got lost
        if self._written != before and not ours:
            self._taken_over = True
            raise TakenOver(f"ConfigMap {self._namespace}/{self._name} was written by another master")


class Keeper:
    """Writes the state when it has changed, and lets others wait until it is stored."""

    def __init__(self, store: Store, snapshot: Callable[[], Encoded]) -> None:
        self._store = store
        self._snapshot = snapshot
        self._pace = Pace(pause=store.pause, burst=store.burst)
        self._changes = 0
        self._stored = 0
        self._waited_for = 0
        self._unstored_since: float | None = None
        self.stored_bytes = 0
        self.left_out: tuple[str, ...] = ()
        """What the stored state is without, for want of room."""
        self.writes = 0
        self._wake = asyncio.Event()
        self._written = asyncio.Event()

    @property
    def changes(self) -> int:
        """How many changes there have been; the number of the latest one."""
        return self._changes

    def changed(self) -> None:
        """Note a change; it is written soon."""
        self._changes += 1
        if self._unstored_since is None:
            self._unstored_since = time.monotonic()
            self._wake.set()

    def unstored_seconds(self) -> float:
        """Return the age of the oldest change that is not stored; 0 when all are."""
        return 0.0 if self._unstored_since is None else time.monotonic() - self._unstored_since

    async def stored(self, change: int) -> None:
        """Return when all changes up to a number are stored. Raises `NotStored` when that takes too long."""
        if self._waited_for < change:
            self._waited_for = change
            self._wake.set()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                while self._stored < change:
                    await self._written.wait()
        except TimeoutError as error:
            raise NotStored("the master's state cannot be stored at the moment; try again") from error

    async def run(self) -> None:
        """Write whenever something has changed, for ever. Raises `TakenOver`."""
        while True:
            await self._due()
            try:
                await self.flush()
            except Failed as error:
                log.warning("the state is not stored, trying again: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _due(self) -> None:
        """Return when something is to be written and it is time to do so."""
        while True:
            self._wake.clear()
            wait: float | None = None
            if self._changes != self._stored:
                wait = self._pace.wait(self._now(), waited_for=self._waited_for > self._stored)
                if not wait:
                    return
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    async def flush(self) -> None:
        """Write now if something has changed."""
        changes = self._changes
        if changes != self._stored:
            taken_at = time.monotonic()
            taken = self._take()
            snapshot_seconds = time.monotonic() - taken_at
            await self._store.save(taken.data)
            self._pace.wrote(self._now(), snapshot_seconds=snapshot_seconds)
            self._stored = changes
            self._unstored_since = None if changes == self._changes else taken_at
            self.stored_bytes, self.writes = len(taken.data), self.writes + 1
            written, self._written = self._written, asyncio.Event()
            written.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _take(self) -> Encoded:
        """Return the present state as it is to be stored. Raises `Failed` when it does not fit."""
        try:
            taken = self._snapshot()
        except TooLarge as error:
            raise Failed(str(error)) from error
        if taken.left_out != self.left_out:
            self.left_out = taken.left_out
            log.warning("the state is stored without: %s", ", ".join(taken.left_out) or "nothing, it fits again")
        return taken
