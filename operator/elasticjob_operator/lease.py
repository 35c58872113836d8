"""Leader election by a Kubernetes Lease.

One operator leads, and the others wait until its lease expires or is released. A leader keeps its
lease if the API server gives no answer for half of the lease's duration: no request to renew the
lease takes all the remaining time, and the next one gets a new connection.
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
"""The default time after which a lease that is not renewed expires."""


class LeaseLost(Exception):
    """This process is no longer the leader and must not write."""


@dataclass
class Leadership:
    """The right to write until `valid_until`, on the monotonic clock.

    Until then no other process can become the leader.
    """

    valid_until: float

    def check(self) -> None:
        """Raise unless this process is certainly the leader.

        Before a write, the process may have been frozen for any time.

        Raises:
            TryLater: the lease may have expired; it is renewed, or this process stops leading.
        """
        if time.monotonic() > self.valid_until:
            message = "not written: the lease was not renewed in time; another operator may lead"
            raise TryLater(0, "LeaseLost", message)


@dataclass(frozen=True)
class LeaderElector:
    """Acquires, renews and releases the lease for one process.

    Attributes:
        kube: a session that is used only for the lease.
        namespace: of the lease.
        identity: unique to the process, such as its host name and a random part.
        seconds: the time after which the lease expires if it is not renewed.
    """

    kube: Kube
    namespace: str
    identity: str
    seconds: int = DURATION_SECONDS

    @property
    def _renew_seconds(self) -> float:
        """How long a leader may write after a renewal; the lease expires later."""
        return self.seconds * 0.8

    @property
    def _retry_seconds(self) -> float:
        return self.seconds / 10

    @property
    def _request_seconds(self) -> float:
        """The time-out of a request to acquire the lease."""
        return self.seconds / 3

    @asynccontextmanager
    async def leadership(self) -> AsyncIterator[Leadership]:
        """Wait to become the leader, renew the lease inside the `async with`, and then release it.

        Raises:
            LeaseLost: the lease could not be renewed in time, so the block was cancelled. This
                process may lead again, but must not use anything that it has observed before.
        """
        lease, since = await self._acquire()
        leadership = Leadership(since + self._renew_seconds)
        log.info("leading as %s", self.identity)
        leader_task = asyncio.current_task()
        assert leader_task is not None
        lost = ""

        def stop(renewing: asyncio.Task[str]) -> None:
            nonlocal lost
            if not renewing.cancelled():
                error = renewing.exception()
                lost = renewing.result() if error is None else f"could not be renewed: {error!r}"
                leader_task.cancel()

        renewing = asyncio.create_task(self._renew(lease, leadership))
        renewing.add_done_callback(stop)
        try:
            yield leadership
        except asyncio.CancelledError:
            # If the task remains cancelled, it was also cancelled for another reason.
            if lost and leader_task.uncancel() == 0:
                raise LeaseLost(
                    f"lease {self.namespace}/{NAME} {lost}; another operator may lead"
                ) from None
            raise
        finally:
            renewing.cancel()
            if not lost:
                await self._release()

    async def _acquire(self) -> tuple[dict[str, Any], float]:
        """Acquire the lease; return it, and the monotonic time just before the write."""
        last_version = ""
        since = time.monotonic()
        last_logged = ""
        while True:
            try:
                async with asyncio.timeout(self._request_seconds):
                    found = await self._find()
                # The clocks of two machines differ, so this process measures for how long it has
                # observed no change.
                version = found["metadata"]["resourceVersion"]
                if version != last_version:
                    last_version = version
                    since = time.monotonic()
                holder = found["spec"].get("holderIdentity") or ""
                duration = found["spec"].get("leaseDurationSeconds", self.seconds)
                is_valid = time.monotonic() - since < duration
                # The lease may be this process' own: just created, or acquired by a write whose
                # answer was lost. Then the write renews it.
                if not (holder and is_valid) or holder == self.identity:
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
        """Return the lease; if it does not exist, create it with this process as its holder."""
        try:
            return await self.kube.get(LEASES, self.namespace, NAME)
        except NotFound:
            return await self.kube.create(LEASES, self.namespace, self._body({}, transitions=0))

    async def _renew(self, lease: dict[str, Any], leadership: Leadership) -> str:
        """Renew the lease; return why this process leads no longer."""
        pause = self._retry_seconds
        while True:
            await asyncio.sleep(pause)
            pause = self._retry_seconds / 5  # unless it is renewed
            # Other processes count from when they observe the write, which is after this moment.
            sent = time.monotonic()
            left = leadership.valid_until - sent
            if left <= 0:
                return f"could not be renewed for {self._renew_seconds:g} s"
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
                        # Either an earlier write succeeded without an answer, or there is another
                        # leader.
                        lease = await self.kube.get(LEASES, self.namespace, NAME)
                        holder = lease["spec"].get("holderIdentity")
                        if holder != self.identity:
                            return f"is held by {holder or 'no operator'}"
            except TimeoutError:
                log.warning("lease %s/%s: no answer", self.namespace, NAME)
            except NotFound:
                return "was deleted"
            except KubeError as error:
                log.warning("lease %s/%s: %s", self.namespace, NAME, error)

    async def _release(self) -> None:
        """Release the lease, so that the next operator need not wait until it expires."""
        try:
            found = await self.kube.get(LEASES, self.namespace, NAME)
            if found["spec"].get("holderIdentity") == self.identity:
                found["spec"]["holderIdentity"] = ""
                await self.kube.replace(LEASES, self.namespace, NAME, found)
        except KubeError as error:
            log.info("lease %s/%s was not released: %s", self.namespace, NAME, error)

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
