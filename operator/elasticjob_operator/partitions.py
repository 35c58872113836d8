"""Leads partitions: waits for their Leases, works on those it gets, and gives them up.

Each partition that this process leads has watches, a cache and a queue of its own. So the objects
of a partition are listed after its Lease was acquired, as its previous leader has left them; a lost
Lease ends the work on its partition alone; and no partition's state outlives the right to work on
it. The price is that each watch is repeated for each led partition; events of other partitions are
skipped after their namespace was read.

Processes with different `--partitions` assign a job to different Leases. So with several partitions
a process first needs the installation's Lease, which has the name of the one Lease without
partitions. All processes of the same `--partitions` hold it together: its holder is not a process,
but what they must agree on. Others, also those of versions without partitions, wait until none of
them has renewed it for the Lease's duration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from elasticjob_api import names
from elasticjob_kube.session import Kube
from elasticjob_kube.trace_export import TraceExport

from elasticjob_operator.config import Config
from elasticjob_operator.core.partitioning import Partition, Scope, Shares
from elasticjob_operator.errors import StorageRestored
from elasticjob_operator.http_server import OperatorState
from elasticjob_operator.leader import Leader
from elasticjob_operator.lease import LeaderElector, Leadership, LeaseLost

log = logging.getLogger(__name__)
Check = Callable[[], None]
"""Raises unless this process may write."""


@dataclass
class Partitions:
    """The partitions of the installation, from the view of one process.

    Attributes:
        kube: the session for the work.
        lease_kube: a session for the Leases: their renewal must not wait behind the writes that
            depend on it.
    """

    kube: Kube
    lease_kube: Kube
    config: Config
    state: OperatorState
    traces: TraceExport
    _tasks: dict[Partition, asyncio.Task[None]] = field(default_factory=dict)
    _led: dict[Partition, Leadership] = field(default_factory=dict)
    _is_ending: bool = False

    async def run(self) -> None:
        """Lead partitions until `end`.

        Raises:
            Exception: the error of a watch, which should never end.
        """
        while not self._is_ending:
            try:
                async with self._membership() as check:
                    await self._lead_all(check)
            except LeaseLost as error:
                # The process does not exit: the kubelet restarts a container that exits repeatedly
                # after pauses of up to 5 minutes.
                log.warning("%s; waiting to lead again", error)

    async def end(self) -> None:
        """Finish the work in progress and release the Leases; nothing is written after that."""
        self._is_ending = True
        for partition, task in self._tasks.items():
            if leadership := self._led.get(partition):
                leadership.ending.set()
            else:
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    @asynccontextmanager
    async def _membership(self) -> AsyncIterator[Check]:
        """Hold the installation's Lease together with the processes of the same `--partitions`."""
        config = self.config
        if config.partitions == 1:
            yield lambda: None
            return
        elector = LeaderElector(
            self.lease_kube,
            config.lease_namespace,
            f"replicas with --partitions {config.partitions} "
            f"--lease-seconds {config.lease_seconds}",
            config.lease_seconds,
            role="sharing the work",
            is_shared=True,
        )
        async with elector.leadership() as membership:
            yield membership.check

    async def _lead_all(self, check: Check) -> None:
        shares = Shares(self.config.partitions)
        partitions = [Partition(index, shares.number) for index in range(shares.number)]
        self._tasks = {
            partition: asyncio.create_task(self._lead(partition, shares, check))
            for partition in partitions
        }
        try:
            ended, _ = await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
            for task in ended:
                if not task.cancelled():
                    task.result()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self._tasks = {}

    async def _lead(self, partition: Partition, shares: Shares, check: Check) -> None:
        """Wait for a partition's Lease and lead the partition, again and again until `end`."""
        elector = self._elector(partition, shares)
        scope = Scope(self.config.namespace, partition)
        while not self._is_ending:
            try:
                async with elector.leadership() as leadership:
                    self._led[partition] = leadership

                    def may_write(held: Leadership = leadership) -> None:
                        check()
                        held.check()

                    kube = self.kube.guarded(may_write)
                    led = self.state.lead(partition)
                    leader = Leader(kube, self.config, scope, led, self.traces)
                    await leader.run(leadership.ending)
            except (LeaseLost, StorageRestored) as error:
                log.warning("%s; waiting to lead again", error)
                continue
            finally:
                self._led.pop(partition, None)
                self.state.forget(partition)
            if not self._is_ending:
                await asyncio.sleep(elector.pause_after_giving)

    def _elector(self, partition: Partition, shares: Shares) -> LeaderElector:
        config = self.config
        is_only = partition.number == 1
        return LeaderElector(
            self.lease_kube,
            config.lease_namespace,
            config.identity,
            config.lease_seconds,
            name=names.OPERATOR if is_only else f"{names.OPERATOR}-{partition.index}",
            role="leading" if is_only else f"leading {partition}",
            shares=shares,
            partition=partition.index,
        )
