"""Follows the logs of a job's members while these come and go, until the job has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import PODS

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, NoSuchObject
from elasticjob_client.logs import LogLine, LogOptions, follow_log, log_line
from elasticjob_client.master_queries import open_master
from elasticjob_client.members import Choice, JobPod, Ranks
from elasticjob_client.milestones import wait_for

MAX_FOLLOWED = 32
"""Logs at a time; those of further members wait until one of them has ended."""
_RECONNECT_SECONDS = 1.0
_FIRST_RANKS_SECONDS = 5.0
_LAST_WORDS_SECONDS = 10.0
"""How long logs may go on after the job has ended."""
_NEW_RANK_LINES = 10
"""Of a member that has got a rank that is meant: so many lines of before."""
_LINES_AHEAD = 1000


class LogFollower:
    """Follows the members that are meant; pods that appear are told from their beginning on.

    Where ranks are meant, those of the present world count. A member that leaves is told to its
    end.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: ElasticJob,
        choice: Choice,
        options: LogOptions,
        tell: Callable[[str], None],
    ) -> None:
        """Prepare.

        Args:
            cluster: its user may list and watch pods, and read their logs.
            job: whose members.
            choice: which of them.
            options: for the members that are there now.
            tell: is called with what the user should know beside the lines.
        """
        self._cluster = cluster
        self._job = job
        self._choice = choice
        self._options = options
        self._tell = tell
        self._pods: dict[str, JobPod] = {}
        self._ranks: Ranks = {}
        self._asked_for_ranks = asyncio.Event()
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._passed: set[tuple[str, int]] = set()
        self._job_ended = False
        self._closing = False
        self._changed = asyncio.Event()
        self._lines: asyncio.Queue[LogLine | None] = asyncio.Queue(_LINES_AHEAD)

    async def lines(self) -> AsyncGenerator[LogLine, None]:
        """Yield the lines as they are written, until the job has ended and all is told.

        Raises:
            ClientError: the logs cannot be read.
        """
        selector = f"{names.LABEL_JOB_UID}={self._job.metadata.uid}"
        informer = Informer(
            self._cluster.kube,
            PODS,
            JobPod,
            namespace=self._cluster.namespace,
            label_selector=selector,
            on_change=self._on_pod,
        )
        steering = asyncio.create_task(self._steer(informer))
        watching = (informer.run(), self._wait_for_end(), self._follow_ranks())
        helpers = [steering, *map(asyncio.create_task, watching)]
        try:
            while (line := await self._lines.get()) is not None:
                yield line
            await steering
        finally:
            self._closing = True
            everything = [*helpers, *self._tasks.values()]
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)

    # --- what is observed
    # ---------------------------------------------------------------------------------------------

    def _on_pod(self, before: JobPod | None, after: JobPod | None) -> None:
        if after is not None:
            self._pods[after.metadata.uid] = after
        elif before is not None:
            self._pods.pop(before.metadata.uid, None)
        self._changed.set()

    async def _follow_ranks(self) -> None:
        """Keep the ranks current, by one master after the other.

        What one has told stays until the next tells more.
        """
        while True:
            with suppress(ClientError):
                async with open_master(self._cluster, self._job.metadata.name) as master:
                    last = -1
                    async for status in master.watch("Status"):
                        if status.round != last:
                            last = status.round
                            members = (await master.get("World")).members
                            if members:
                                self._ranks = {
                                    each.pod_uid: rank for rank, each in enumerate(members)
                                }
                                self._changed.set()
                        self._asked_for_ranks.set()
            self._asked_for_ranks.set()
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _wait_for_end(self) -> None:
        with suppress(NoSuchObject):
            await wait_for(self._cluster, self._job.metadata.name, "ended")
        self._job_ended = True
        self._changed.set()

    # --- what is done
    # -------------------------------------------------------------------------------------------------

    async def _steer(self, informer: Informer[JobPod]) -> None:
        try:
            await informer.synced.wait()
            if self._pods:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._asked_for_ranks.wait(), _FIRST_RANKS_SECONDS)
            self._introduce()
            await self._follow_until_the_end()
        finally:
            if not self._closing:  # else nobody takes the lines that wait, and there may be no room
                await self._lines.put(None)

    async def _follow_until_the_end(self) -> None:
        deadline: float | None = None
        options = self._options
        while True:
            self._changed.clear()
            self._start_due(options)
            options = LogOptions(timestamps=options.timestamps)
            for task in self._tasks.values():
                if task.done() and not task.cancelled():
                    task.result()
            if self._job_ended:
                now = asyncio.get_running_loop().time()
                deadline = deadline or now + _LAST_WORDS_SECONDS
                if not self._running() or now >= deadline:
                    return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), 1.0 if self._job_ended else None)

    def _start_due(self, options: LogOptions) -> None:
        meant = self._choice.of(self._pods.values(), self._ranks)
        if self._choice.needs_ranks:
            self._stop_others({each.metadata.uid for each in meant})
        for pod in meant:
            key = pod.incarnation
            if pod.has_begun and key not in self._tasks and len(self._running()) < MAX_FOLLOWED:
                tail = _NEW_RANK_LINES if key in self._passed else options.tail
                self._tasks[key] = task = asyncio.create_task(
                    self._follow(pod, replace(options, tail=tail))
                )
                task.add_done_callback(lambda _: self._changed.set())
        self._passed |= {pod.incarnation for pod in self._pods.values() if pod.has_begun}

    def _stop_others(self, meant: set[str]) -> None:
        """Stop following members that have another rank now, not those that have left the world."""
        for key in [key for key in self._tasks if key[0] not in meant and key[0] in self._ranks]:
            self._tasks.pop(key).cancel()

    async def _follow(self, pod: JobPod, options: LogOptions) -> None:
        async for text in follow_log(self._cluster, pod, options):
            await self._lines.put(log_line(pod, self._ranks, text))

    def _running(self) -> list[asyncio.Task[None]]:
        return [task for task in self._tasks.values() if not task.done()]

    def _introduce(self) -> None:
        """Say what is followed, where that is not what it seems."""
        meant = self._choice.of(self._pods.values(), self._ranks)
        if not meant:
            self._tell("no such member runs yet; waiting for it")
        elif self._choice.needs_ranks and not self._ranks:
            pods = ", ".join(each.name for each in meant[:8])
            self._tell(f"no ranks are known yet, so members are taken by their index: {pods}")
        if len(meant) > MAX_FOLLOWED:
            self._tell(
                f"{MAX_FOLLOWED} logs are followed at a time; {len(meant) - MAX_FOLLOWED} members wait"
            )
