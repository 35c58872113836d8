"""Leader election by a Kubernetes Lease.

One operator leads, and others wait until its lease expires or is released. An API server that
stands still for half of the lease's duration costs nobody the lead: no request to renew it takes
all the time that is left, and the next one gets a connection of its own.
"""

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
"""Default of how long others wait for a leader that does not renew its lease."""


class LeaseLost(Exception):
    """This process is no longer the leader and must not write any more."""


@dataclass
class Leadership:
    """Held by the leader.

    Until `valid_until`, on the monotonic clock, no other process can have become the leader.
    """

    valid_until: float

    def check(self) -> None:
        """Raise unless this process is certainly the leader.

        It may have been frozen for any time before a write.

        Raises:
            TryLater: the lease may have run out; it is renewed, or this process ends.
        """
        if time.monotonic() > self.valid_until:
            raise TryLater(
                0,
                "LeaseLost",
                "not written: the lease was not renewed in time, another may be leading",
            )


@dataclass(frozen=True)
class LeaderElector:
    """Acquires, renews and releases the lease for one process.

    Attributes:
        kube: a session for the lease alone.
        namespace: of the lease.
        identity: unique to the process, such as host name and a random part.
        seconds: how long the lease is valid without being renewed.
    """

    kube: Kube
    namespace: str
    identity: str
    seconds: int = DURATION_SECONDS

    @property
    def _renew_seconds(self) -> float:
        """How long a leader may write after its last renewal.

        It stops before another process may become the leader.
        """
        return self.seconds * 0.8

    @property
    def _retry_seconds(self) -> float:
        return self.seconds / 10

    @property
    def _request_seconds(self) -> float:
        """How long a request may take to acquire the lease; after that, another one is sent."""
        return self.seconds / 3

    @asynccontextmanager
    async def leadership(self) -> AsyncIterator[Leadership]:
        """Wait to become the leader, and renew the lease inside the `async with`.

        It is released at the end.

        Raises:
            LeaseLost: from the block, which is cancelled when the lease could not be renewed in time. The lead can be
                acquired again; what was observed before must not be used any more.
        """
        lease, since = await self._acquire()
        leadership = Leadership(since + self._renew_seconds)
        log.info("leading as %s", self.identity)
        leader_task = asyncio.current_task()
        assert leader_task is not None
        lost = False

        def stop(renewing: asyncio.Task[None]) -> None:
            nonlocal lost
            if not renewing.cancelled():
                lost = True
                leader_task.cancel()

        renewing = asyncio.create_task(self._renew(lease, leadership))
        renewing.add_done_callback(stop)
        try:
            yield leadership
        except asyncio.CancelledError:
            if lost and leader_task.uncancel() == 0:  # else it is cancelled for another reason, too
                raise LeaseLost(
                    "the lease could not be renewed; another operator may be leading"
                ) from None
            raise
        finally:
            renewing.cancel()
            if not lost:
                await self._release()

    async def _acquire(self) -> tuple[dict[str, Any], float]:
        """Return the lease once it is ours, and the monotonic time just before the write that acquired it."""
        last_version = ""
        since = time.monotonic()
        last_logged = ""
        while True:
            try:
                async with asyncio.timeout(self._request_seconds):
                    found = await self._find()
                # Clocks of two machines differ: what counts is for how long this process has
                # observed no change.
                if (version := found["metadata"]["resourceVersion"]) != last_version:
                    last_version = version
                    since = time.monotonic()
                holder = found["spec"].get("holderIdentity") or ""
                valid = time.monotonic() - since < found["spec"].get(
                    "leaseDurationSeconds", self.seconds
                )
                # Ours already: just created, or acquired by a write whose answer was lost. Writing
                # it again renews it.
                if not (holder and valid) or holder == self.identity:
                    transitions = found["spec"].get("leaseTransitions", 0) + 1
                    body = self._body(found["metadata"], transitions=transitions)
                    sent = time.monotonic()
                    async with asyncio.timeout(self._request_seconds):
                        return await self.kube.replace(LEASES, self.namespace, NAME, body), sent
                if holder != last_logged:
                    log.info("waiting: %s is leading", holder)
                    last_logged = holder
            except TimeoutError:
                log.warning("lease %s/%s: no answer", self.namespace, NAME)
            except KubeError as error:
                log.warning("lease %s/%s: %s", self.namespace, NAME, error)
            await asyncio.sleep(self._retry_seconds)

    async def _find(self) -> dict[str, Any]:
        """Return the existing lease; where there is none, create it, held by this process."""
        try:
            return await self.kube.get(LEASES, self.namespace, NAME)
        except NotFound:
            return await self.kube.create(LEASES, self.namespace, self._body({}, transitions=0))

    async def _renew(self, lease: dict[str, Any], leadership: Leadership) -> None:
        """Renew the lease.

        Return when that has not succeeded in time, or the lease is another's or deleted.
        """
        pause = self._retry_seconds
        while True:
            await asyncio.sleep(pause)
            pause = self._retry_seconds / 5  # unless it is renewed
            # Others count from when they see the write, which is not before it is sent.
            sent = time.monotonic()
            left = leadership.valid_until - sent
            if left <= 0:
                return
            try:
                async with asyncio.timeout(max(left / 2, self._retry_seconds / 5)):
                    try:
                        body = self._body(
                            lease["metadata"], transitions=lease["spec"].get("leaseTransitions", 0)
                        )
                        lease = await self.kube.replace(LEASES, self.namespace, NAME, body)
                        leadership.valid_until = sent + self._renew_seconds
                        pause = self._retry_seconds
                    except Conflict:
                        # Our own write whose answer was lost, or another leader: the lease itself
                        # says which.
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
        """Release the lease, so that the next operator need not wait for it to expire."""
        try:
            found = await self.kube.get(LEASES, self.namespace, NAME)
            if found["spec"].get("holderIdentity") == self.identity:
                found["spec"]["holderIdentity"] = ""
                await self.kube.replace(LEASES, self.namespace, NAME, found)
        except KubeError as error:
            log.info("lease %s/%s not given back: %s", self.namespace, NAME, error)

    def _body(self, metadata: dict[str, Any], *, transitions: int) -> dict[str, Any]:
        now = format_micro_time(time.time())
        kept = {
            key: metadata[key]
            for key in ("resourceVersion", "labels", "annotations")
            if key in metadata
        }
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
