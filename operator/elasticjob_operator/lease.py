"""Leader election by a Kubernetes Lease.

One operator leads, and the others wait until its lease expires or is released. A leader keeps its
lease if the API server gives no answer for half of the lease's duration: no request to renew the
lease takes all the remaining time, and the next one gets a new connection. A process that can open
no file neither renews nor acquires a lease, as its work needs connections.

With partitions there are several Leases. A process that leads fewer partitions than another one
stores a wish at the Lease of one of them. Its leader finds the wish when it renews the Lease,
finishes the work in progress and releases the Lease, or drops the wish.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from elasticjob_api import names
from elasticjob_api.times import format_micro_time
from elasticjob_kube import open_files
from elasticjob_kube.errors import Conflict, KubeError, NotFound, TryLater
from elasticjob_kube.resources import LEASES
from elasticjob_kube.session import Kube

from elasticjob_operator.core.partitioning import Shares

log = logging.getLogger(__name__)
NAME = names.OPERATOR
DURATION_SECONDS = 15
"""The default time after which a lease that is not renewed expires."""
_WANTED_BY = f"{names.GROUP}/wanted-by"
"""The annotation of a Lease that names a process which asks its holder to give it up."""


class LeaseLost(Exception):
    """This process is no longer the leader and must not write."""


@dataclass
class Leadership:
    """The right to write until `valid_until`, on the monotonic clock.

    Until then no other process can become the leader.

    Attributes:
        ending: is set when this process shall finish its work and give up the lease.
    """

    valid_until: float
    ending: asyncio.Event = field(default_factory=asyncio.Event)

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
        kube: a session that is used only for leases.
        namespace: the namespace of the lease.
        identity: unique to the process, such as its host name and a random part.
        seconds: the time after which the lease expires if it is not renewed.
        name: the name of the lease.
        role: what the holder does, for the log.
        is_shared: whether all processes with this identity hold the lease together. Each renews it
            for itself, and none releases it, as another one may rely on it.
        shares: what this process knows of all partitions.
        partition: the index of the partition whose leader holds the lease.
    """

    kube: Kube
    namespace: str
    identity: str
    seconds: int = DURATION_SECONDS
    name: str = NAME
    role: str = "leading"
    is_shared: bool = False
    shares: Shares = field(default_factory=Shares)
    partition: int = 0

    @property
    def pause_after_giving(self) -> float:
        """The seconds after which a process that gave up the lease takes it if nobody else has."""
        return self._patience + 2 * self._retry_seconds

    @property
    def _patience(self) -> float:
        """How long a lease must be free until it is taken beyond the process' share."""
        return 2 * self._retry_seconds

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
        self.shares.led.add(self.partition)
        log.info("%s as %s", self.role, self.identity)
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
                    f"lease {self.namespace}/{self.name} {lost}; another operator may lead"
                ) from None
            raise
        finally:
            renewing.cancel()
            self.shares.led.discard(self.partition)
            if not (lost or self.is_shared):
                await self._release()

    async def _acquire(self) -> tuple[dict[str, Any], float]:
        """Acquire the lease; return it, and the monotonic time just before the write."""
        last_version = ""
        begun = time.monotonic()
        since = begun
        free_since: float | None = None
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
                now = time.monotonic()
                # The lease may be this process' own: just created, or acquired by a write whose
                # answer was lost. Then the write renews it.
                is_own = holder == self.identity
                is_other = bool(holder) and now - since < duration and not is_own
                wanted_by = found["metadata"].get("annotations", {}).get(_WANTED_BY, "")
                self.shares.observe(
                    self.partition, holder if is_other else "", is_wanted=wanted_by == self.identity
                )
                if is_other:
                    free_since = None
                    if not wanted_by and now - begun >= self.seconds:
                        last_version = await self._ask(found) or last_version
                elif is_own or self._may_take(free_since := free_since or now):
                    transitions = found["spec"].get("leaseTransitions", 0) + 1
                    body = self._body(found["metadata"], transitions=transitions)
                    sent = time.monotonic()
                    async with asyncio.timeout(self._request_seconds):
                        return await self._replace(body), sent
                if is_other and holder != last_logged:
                    log.info("waiting: lease %s is held by %s", self.name, holder)
                    last_logged = holder
            except TimeoutError:
                log.warning("lease %s/%s: no answer", self.namespace, self.name)
            except KubeError as error:
                log.warning("lease %s/%s: %s", self.namespace, self.name, error)
            await asyncio.sleep(self._retry_seconds)

    def _may_take(self, free_since: float) -> bool:
        return self.shares.may_take() or time.monotonic() - free_since >= self._patience

    async def _ask(self, found: dict[str, Any]) -> str:
        """Ask the holder to give up the lease, if it leads too many partitions.

        Return the lease's version after the write, which is no sign of life of the holder; empty
        without a write.
        """
        if not self.shares.ask(self.partition):
            return ""
        metadata = found["metadata"]
        annotations = {**metadata.get("annotations", {}), _WANTED_BY: self.identity}
        body = {**found, "metadata": {**metadata, "annotations": annotations}}
        async with asyncio.timeout(self._request_seconds):
            answer = await self._replace(body)
        log.info("asking %s for lease %s", found["spec"]["holderIdentity"], self.name)
        return str(answer["metadata"]["resourceVersion"])

    async def _replace(self, body: dict[str, Any]) -> dict[str, Any]:
        if problem := open_files.problem():
            raise TryLater(0, "NoFile", problem)
        return await self.kube.replace(LEASES, self.namespace, self.name, body)

    async def _find(self) -> dict[str, Any]:
        """Return the lease; if it does not exist, create it with this process as its holder."""
        try:
            return await self.kube.get(LEASES, self.namespace, self.name)
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
                        lease = await self._replace(body)
                        leadership.valid_until = sent + self._renew_seconds
                        pause = self._retry_seconds
                    except Conflict:
                        # Either an earlier write succeeded without an answer, or another process
                        # has renewed a shared lease or stored a wish, or there is another leader.
                        lease = await self.kube.get(LEASES, self.namespace, self.name)
                        holder = lease["spec"].get("holderIdentity")
                        if holder != self.identity:
                            return f"is held by {holder or 'no operator'}"
                        self._grant(lease, leadership)
                        pause = 0.0
            except TimeoutError:
                log.warning("lease %s/%s: no answer", self.namespace, self.name)
            except NotFound:
                return "was deleted"
            except KubeError as error:
                log.warning("lease %s/%s: %s", self.namespace, self.name, error)

    def _grant(self, lease: dict[str, Any], leadership: Leadership) -> None:
        """End this leadership if another process wants it and may have it.

        The next renewal drops the wish in any case.
        """
        wanted_by = lease["metadata"].get("annotations", {}).get(_WANTED_BY)
        if wanted_by and not leadership.ending.is_set() and self.shares.give(self.partition):
            log.info("giving up lease %s: %s leads fewer partitions", self.name, wanted_by)
            leadership.ending.set()

    async def _release(self) -> None:
        """Release the lease, so that the next operator need not wait until it expires."""
        try:
            found = await self.kube.get(LEASES, self.namespace, self.name)
            if found["spec"].get("holderIdentity") == self.identity:
                found["spec"]["holderIdentity"] = ""
                await self._replace(found)
        except KubeError as error:
            log.info("lease %s/%s was not released: %s", self.namespace, self.name, error)

    def _body(self, metadata: dict[str, Any], *, transitions: int) -> dict[str, Any]:
        now = format_micro_time(self.kube.clock.now())
        kept = {
            key: metadata[key]
            for key in ("resourceVersion", "labels", "annotations")
            if key in metadata
        }
        annotations = kept.get("annotations", {})
        kept["annotations"] = {key: annotations[key] for key in annotations if key != _WANTED_BY}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self.name, "namespace": self.namespace, **kept},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self.seconds,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }
