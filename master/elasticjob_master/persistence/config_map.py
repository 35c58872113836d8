"""The state in the job's ConfigMap, which belongs to one master at a time.

A master begins with a claim: it writes its mark to the ConfigMap. Every write names the version of
the ConfigMap that it replaces. So no write of an earlier master succeeds after the claim, and that
master finds the mark and ends. If the state is empty or deleted, no master owns it, and the master
writes its own state back.

If a service account is deleted and created again, the API server refuses its earlier tokens for
ever. So a master whose token is refused for a while ends. The operator starts one in a new pod,
which gets a token of the new account.
"""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
import time
from typing import Any, NamedTuple

import msgspec
from elasticjob_api import names
from elasticjob_kube.errors import Conflict, KubeError
from elasticjob_kube.resources import CONFIG_MAPS
from elasticjob_kube.session import Kube

from elasticjob_master.persistence.store import CredentialsRefused, StoreFailed, TakenOver

_KEY = "state"
_REQUEST_SECONDS = 8.0
"""The time for one claim, write or check. A dead connection must not delay the next attempt."""
_ATTEMPTS = 3
_UNAUTHORIZED = 401
_REFUSED_SECONDS = 30.0
"""The time for which the token may be refused. An API server that has just started may refuse valid
tokens, and a replaced token is read again after at most 10 s (`TOKEN_SECONDS`).
"""
_MARK = re.compile(r"([0-9]{1,15})-([0-9a-f]{16})")


class Mark(NamedTuple):
    """The owner of a state. The mark of a later claim is greater.

    Attributes:
        claimed_at: milliseconds since the epoch. It is greater than in every mark that this master
            has found, so that the clocks of two nodes may differ.
        nonce: distinguishes masters.
    """

    claimed_at: int
    nonce: str

    def __str__(self) -> str:
        return f"{self.claimed_at}-{self.nonce}"


def read_mark(text: str) -> Mark | None:
    """Return the mark that a master has written; None if the text is no mark."""
    found = _MARK.fullmatch(text)
    return Mark(int(found[1]), found[2]) if found else None


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    binary_data: dict[str, str] | None = None

    @property
    def mark(self) -> Mark | None:
        return read_mark((self.metadata.annotations or {}).get(names.ANNOTATION_STATE_OF, ""))

    @property
    def state(self) -> str:
        """The stored state as base64; empty: none is stored."""
        return (self.binary_data or {}).get(_KEY, "")


class ConfigMapStore:
    """Stores the state in the job's ConfigMap. Each write names the version that it replaces."""

    shared = True
    pause = 1.0
    burst = 8.0
    largest: int | None = 900 * 1024
    """The API server takes 1 MiB of data in a ConfigMap."""

    def __init__(self, kube: Kube, namespace: str, name: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._mark = Mark(0, secrets.token_hex(8))
        self._version = ""
        self._saved: int | None = None
        """The hash of the state that was saved last."""
        self._taken_over = False
        self._refused_since: float | None = None

    async def claim(self) -> bytes | None:
        """Mark the state as this master's and return it.

        Raises `StoreFailed`, also if the ConfigMap does not exist yet.
        """
        found = await self._in_time(self._claim())
        return base64.b64decode(found.state) if found.state else None

    async def save(self, data: bytes) -> None:
        """Replace the state unless a newer master has claimed it."""
        await self._in_time(self._save(base64.b64encode(data).decode()))

    async def is_kept(self) -> bool:
        """Return whether the ConfigMap contains the state that was saved last."""
        found = await self._in_time(self._read())
        return hash(found.state) == self._saved

    async def _in_time(self, work: Any) -> Any:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                answer = await work
        except KubeError as error:
            self._record_refusal(error)
            raise StoreFailed(str(error)) from error
        except TimeoutError as error:
            raise StoreFailed(
                f"the API server has not answered about ConfigMap {self._name} "
                f"in {_REQUEST_SECONDS:g} s"
            ) from error
        self._refused_since = None
        return answer

    def _record_refusal(self, error: KubeError) -> None:
        """Raise `CredentialsRefused` if the token is refused for a while."""
        now = asyncio.get_running_loop().time()
        if error.status != _UNAUTHORIZED:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since >= _REFUSED_SECONDS:
            seconds = now - self._refused_since
            raise CredentialsRefused(
                f"the API server has refused this pod's token for {seconds:.0f} s: "
                "its service account was deleted, or made again; a new pod gets a new token"
            ) from error

    async def _claim(self) -> _ConfigMap:
        while True:
            found = await self._get()
            latest = 0 if found.mark is None else found.mark.claimed_at
            self._mark = self._mark._replace(claimed_at=max(int(time.time() * 1000), latest + 1))
            if await self._patch({}):
                # No other client has written since this was read.
                return found

    async def _save(self, text: str) -> None:
        if self._taken_over:
            raise TakenOver("the state belongs to another master")
        for _ in range(_ATTEMPTS):
            if await self._patch({"binaryData": {_KEY: text}}):
                self._saved = hash(text)
                return
            await self._read()
        raise StoreFailed(f"ConfigMap {self._name} is changed by others again and again")

    async def _patch(self, content: dict[str, Any]) -> bool:
        """Write the mark and the content; return False if the ConfigMap has changed meanwhile."""
        marked = {
            "resourceVersion": self._version,
            "annotations": {names.ANNOTATION_STATE_OF: str(self._mark)},
        }
        try:
            answer = await self._kube.patch(
                CONFIG_MAPS, self._namespace, self._name, {"metadata": marked, **content}
            )
        except Conflict:
            return False
        self._version = answer["metadata"]["resourceVersion"]
        return True

    async def _get(self) -> _ConfigMap:
        found = await self._kube.get(CONFIG_MAPS, self._namespace, self._name, as_type=_ConfigMap)
        self._version = found.metadata.resource_version
        return found

    async def _read(self) -> _ConfigMap:
        """Read the ConfigMap. Raises `TakenOver` if a newer master has claimed it."""
        found = await self._get()
        if found.mark is not None and found.mark > self._mark:
            self._taken_over = True
            raise TakenOver(
                f"ConfigMap {self._namespace}/{self._name} was written by another master"
            )
        return found
