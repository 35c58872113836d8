"""One operator at a time: a Lease says which. A second one waits, and goes on as soon as the first is gone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from elasticjob_api import names
from elasticjob_api.times import format_micro_time
from elasticjob_kube.errors import Conflict, KubeError, NotFound, TryLater
from elasticjob_kube.resources import LEASES
from elasticjob_kube.session import Kube

log = logging.getLogger(__name__)
NAME = names.OPERATOR
DURATION_SECONDS = 15
"""How long others wait for a leader that says nothing, unless told otherwise."""


class LeaseLost(Exception):
    """This process is no longer the leader and must not write any more."""


@dataclass
class Lead:
    """The lead while it is held. `until` is the last moment, on the monotonic clock, at which nobody else can lead."""

    until: float

    def check(self) -> None:
        """Allow a write only while nobody else can be leading: a process may have been frozen for any time before it.

        Raises:
            TryLater: the lease may have run out; it is renewed, or this process ends.
        """
        if time.monotonic() > self.until:
            raise TryLater(0, "LeaseLost", "not written: the lease was not renewed in time, another may be leading")


@dataclass(frozen=True)
class Candidate:
    """A process that wants to lead.

    Attributes:
        kube: the session.
        namespace: where the lease is.
        identity: unique to the process, such as host name and a random part.
        seconds: how long the lease is good for without being renewed.
    """

    kube: Kube
    namespace: str
    identity: str
    seconds: int = DURATION_SECONDS

    @property
    def _renew_seconds(self) -> float:
        """A leader that could not renew for so long stops writing: before anybody else may start."""
        return self.seconds * 2 / 3

    @property
    def _retry_seconds(self) -> float:
        return self.seconds * 2 / 15

    @asynccontextmanager
    async def leadership(self) -> AsyncIterator[Lead]:
        """Wait to become the leader, then stay it inside the `async with`; given back at its end.

        Raises:
            LeaseLost: into the block's task, when the lease could not be renewed in time.
        """
        lease, since = await self._acquire()
        lead = Lead(since + self._renew_seconds)
        log.info("leading as %s", self.identity)
        holder = asyncio.current_task()
        assert holder is not None
        lost = False

        def stop(renewing: asyncio.Task[None]) -> None:
            nonlocal lost
            if not renewing.cancelled():
                lost = True
                holder.cancel()

        renewing = asyncio.create_task(self._renew(lease, lead))
        renewing.add_done_callback(stop)
        try:
            yield lead
        except asyncio.CancelledError:
            if lost:
                raise LeaseLost("the lease could not be renewed; another operator may be leading") from None
            raise
        finally:
            renewing.cancel()
            if not lost:
                await self._release()

    async def _acquire(self) -> tuple[dict[str, Any], float]:
        """Return the lease once it is ours, and when that was asked for."""
        seen, since, told = "", time.monotonic(), ""
        while True:
            try:
                found = await self._find()
                # Clocks of two machines differ: what counts is how long we have seen the lease unchanged.
                if (version := found["metadata"]["resourceVersion"]) != seen:
                    seen, since = version, time.monotonic()
                holder = found["spec"].get("holderIdentity") or ""
                held = time.monotonic() - since < found["spec"].get("leaseDurationSeconds", self.seconds)
                # Ours already: just made, or taken by a write whose answer was lost. Written again, it is surely fresh.
                if not (holder and held) or holder == self.identity:
                    transitions = found["spec"].get("leaseTransitions", 0) + 1
                    body = self._body(found["metadata"], transitions=transitions)
                    sent = time.monotonic()
                    return await self.kube.replace(LEASES, self.namespace, NAME, body), sent
                if holder != told:
                    log.info("waiting: %s is leading", holder)
                    told = holder
            except KubeError as error:
                log.warning("lease %s/%s: %s", self.namespace, NAME, error)
            await asyncio.sleep(self._retry_seconds)

    async def _find(self) -> dict[str, Any]:
        """Return the lease as it is; the first operator of all creates it, as its own."""
        try:
            return await self.kube.get(LEASES, self.namespace, NAME)
        except NotFound:
            return await self.kube.create(LEASES, self.namespace, self._body({}, transitions=0))

    async def _renew(self, lease: dict[str, Any], lead: Lead) -> None:
        """Renew until that has not worked in time, or the lease is another's or gone."""
        while True:
            await asyncio.sleep(self._retry_seconds)
            # Others count from when the server stored it, which is not before it was sent.
            sent = time.monotonic()
            if sent > lead.until:
                return
            try:
                async with asyncio.timeout(lead.until - sent):
                    try:
                        body = self._body(lease["metadata"], transitions=lease["spec"].get("leaseTransitions", 0))
                        lease = await self.kube.replace(LEASES, self.namespace, NAME, body)
                        lead.until = sent + self._renew_seconds
                    except Conflict:
                        # Our own write whose answer was lost, or another leader: the lease itself tells.
                        lease = await self.kube.get(LEASES, self.namespace, NAME)
                        if lease["spec"].get("holderIdentity") != self.identity:
                            return
            except TimeoutError:
                log.warning("lease %s/%s: no answer", self.namespace, NAME)
            except NotFound:
                return
            except KubeError as error:
                log.warning("lease %s/%s: %s", self.namespace, NAME, error)

    async def _release(self) -> None:
        """Give the lease back, so that the next operator need not wait for it to run out."""
        try:
            found = await self.kube.get(LEASES, self.namespace, NAME)
            if found["spec"].get("holderIdentity") == self.identity:
                found["spec"]["holderIdentity"] = ""
                await self.kube.replace(LEASES, self.namespace, NAME, found)
        except KubeError as error:
            log.info("lease %s/%s not given back: %s", self.namespace, NAME, error)

    def _body(self, metadata: dict[str, Any], *, transitions: int) -> dict[str, Any]:
        now = format_micro_time(time.time())
        kept = {key: metadata[key] for key in ("resourceVersion", "labels", "annotations") if key in metadata}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": NAME, "namespace": self.namespace, **kept},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self.seconds,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }
