"""Yields the logs of a job's members: up to now, or until the job has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_status import ENDED
from elasticjob_api.meta import Json
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import ELASTIC_JOBS, PODS

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, NoLogs, NoSuchObject
from elasticjob_client.jobs import get_job, read
from elasticjob_client.logs import LogLine, LogOptions, follow_log, log_line, read_log
from elasticjob_client.members import Choice, JobPod, Ranks, chosen_pods, job_pods, why_none
from elasticjob_client.related import is_pod_of
from elasticjob_client.waiting import wait_until

MAX_FOLLOWED = 32
"""Logs that are followed at a time; further members wait until one of them ends."""
_RECONNECT_SECONDS = 1.0
_FIRST_RANKS_SECONDS = 5.0
_LAST_LINES_SECONDS = 10.0
"""Logs are followed for this long after the job has ended."""
_NEW_RANK_LINES = 10
"""Earlier lines that are shown of a member that gets a chosen rank while it runs."""
_LINES_AHEAD = 1000
_STARTING = ("ContainerCreating", "PodInitializing")
"""Reasons of containers that will start in a moment."""


async def job_logs(
    cluster: Cluster,
    name: str,
    choice: Choice,
    options: LogOptions,
    *,
    follow: bool,
    notify: Callable[[str], None],
) -> AsyncGenerator[LogLine, None]:
    """Yield the lines of the chosen members, one member after the other.

    Args:
        cluster: its user may list pods and read their logs; with `follow` also watch pods.
        name: the job's name.
        choice: chooses the members.
        options: choose the lines.
        follow: yield the lines of all chosen members as they are written, until the job has ended.
        notify: is called with remarks for the user, such as that no ranks are known.

    Raises:
        NoSuchObject: there is no such job.
        NoLogs: no chosen member has a log.
        ClientError: there is no such member, or a log cannot be read.
    """
    job = await get_job(cluster, name)
    if follow:
        await job_pods(cluster, job)  # raises early if the user lacks a right
        async with aclosing(_Follower(cluster, job, choice, options, notify).lines()) as followed:
            async for each in followed:
                yield each
        return
    pods, ranks = await chosen_pods(cluster, job, choice)
    if choice.needs_ranks and not ranks:
        notify(f"no ranks are known: {_names(pods)} by index")
    found_logs = False
    for pod in pods:
        if not pod.has_begun and not options.previous:
            notify(_without_log(pod))
            continue
        try:
            async with aclosing(read_log(cluster, pod, options)) as lines:
                async for text in lines:
                    yield log_line(pod, ranks, text)
        except NoSuchObject:  # while the logs of the others were read
            notify(f"pod {pod.name} has no log: it has been deleted")
            continue
        found_logs = True
    if not found_logs:
        raise NoLogs("none of the chosen pods has a log")
    if missing := choice.missing(pods, ranks):
        raise ClientError(f"there is no member of rank {missing} now")


def _without_log(pod: JobPod) -> str:
    why = " ".join(pod.why_not_running.split())
    return f"pod {pod.name} has no log: {why or 'it has not begun yet'}"


def _names(pods: list[JobPod]) -> str:
    return ", ".join(pod.name for pod in pods[:8])


class _Follower:
    """Follows the chosen members; a pod that is created later is followed from its first line.

    Ranks are those of the present world. A member that leaves the world is followed to its end.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: ElasticJob,
        choice: Choice,
        options: LogOptions,
        notify: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._choice = choice
        self._options = options
        self._notify = notify
        self._pods: dict[str, JobPod] = {}
        self._ranks: Ranks = {}
        self._ranks_requested = asyncio.Event()
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._seen_incarnations: set[tuple[str, int]] = set()
        self._explained: set[str] = set()
        self._has_followed = False
        self._job_ended = False
        self._closing = False
        self._changed = asyncio.Event()
        self._lines: asyncio.Queue[LogLine | None] = asyncio.Queue(_LINES_AHEAD)

    async def lines(self) -> AsyncGenerator[LogLine, None]:
        """Yield the lines until the job and the followed logs have ended.

        Raises:
            ClientError: the logs cannot be read.
        """
        informer = Informer(
            self._cluster.kube,
            PODS,
            JobPod,
            namespace=self._cluster.namespace,
            label_selector=f"{names.LABEL_JOB_UID}={self._job.metadata.uid}",
            on_change=self._on_pod,
        )
        following = asyncio.create_task(self._follow_all(informer))
        observing = (informer.run(), self._observe_job(), self._observe_ranks())
        helpers = [following, *map(asyncio.create_task, observing)]
        try:
            while (line := await self._lines.get()) is not None:
                yield line
            await following
        finally:
            self._closing = True
            tasks = [*helpers, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _on_pod(self, before: JobPod | None, after: JobPod | None) -> None:
        if after is not None:
            self._pods[after.metadata.uid] = after
        elif before is not None:
            self._pods.pop(before.metadata.uid, None)
        self._changed.set()

    async def _observe_ranks(self) -> None:
        """Keep the ranks current, from the present master and later ones."""
        from elasticjob_client.answers import open_master  # slow: it imports gRPC

        while True:
            with suppress(ClientError):
                async with open_master(self._cluster, self._job) as master:
                    last_round = -1
                    async for status in master.watch("Status"):
                        if status.round != last_round:
                            last_round = status.round
                            self._set_ranks(await master.ranks())
                        self._ranks_requested.set()
            self._ranks_requested.set()
            await asyncio.sleep(_RECONNECT_SECONDS)

    def _set_ranks(self, ranks: Ranks) -> None:
        if ranks:  # a new master has no world at first; the last ranks stay valid
            self._ranks = ranks
            self._changed.set()

    async def _observe_job(self) -> None:
        """Keep the job current until it has ended: its status names its pods."""

        def observe(found: Json) -> bool | None:
            self._job = read(found, ElasticJob)
            self._changed.set()
            return True if self._job.status.phase in ENDED else None

        with suppress(NoSuchObject):
            await wait_until(self._cluster, ELASTIC_JOBS, self._job.metadata.name, observe)
        self._job_ended = True
        self._changed.set()

    async def _follow_all(self, informer: Informer[JobPod]) -> None:
        try:
            await informer.synced.wait()
            if self._pods:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ranks_requested.wait(), _FIRST_RANKS_SECONDS)
            self._introduce()
            await self._follow_until_the_end()
            if not self._has_followed:
                chosen = self._chosen()
                raise NoLogs(
                    "; ".join(map(_without_log, chosen[:8]))
                    or why_none(self._job, list(self._pods.values()), self._choice)
                )
        finally:
            if not self._closing:  # when closing, nothing empties the queue, which may be full
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
                deadline = deadline or now + _LAST_LINES_SECONDS
                if not self._running() or now >= deadline:
                    return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), 1.0 if self._job_ended else None)

    def _start_due(self, options: LogOptions) -> None:
        chosen = self._chosen()
        if self._choice.needs_ranks:
            self._stop_others({each.metadata.uid for each in chosen})
        for pod in chosen:
            key = pod.incarnation
            if not pod.has_begun:
                self._explain(pod)
                continue
            if key in self._tasks or len(self._running()) >= MAX_FOLLOWED:
                continue
            self._has_followed = True
            tail = _NEW_RANK_LINES if key in self._seen_incarnations else options.tail
            task = asyncio.create_task(self._follow(pod, replace(options, tail=tail)))
            task.add_done_callback(lambda _: self._changed.set())
            self._tasks[key] = task
        self._seen_incarnations |= {pod.incarnation for pod in self._pods.values() if pod.has_begun}

    def _explain(self, pod: JobPod) -> None:
        """Notify the user once of each reason why a pod cannot start."""
        why = pod.why_not_running
        text = _without_log(pod)
        if why and not why.startswith(_STARTING) and text not in self._explained:
            self._explained.add(text)
            self._notify(text)

    def _stop_others(self, chosen_uids: set[str]) -> None:
        """Stop following members that now have another rank, but not those outside of the world."""
        for key in list(self._tasks):
            uid, _ = key
            if uid not in chosen_uids and uid in self._ranks:
                self._tasks.pop(key).cancel()

    async def _follow(self, pod: JobPod, options: LogOptions) -> None:
        async for text in follow_log(self._cluster, pod, options):
            await self._lines.put(log_line(pod, self._ranks, text))

    def _chosen(self) -> list[JobPod]:
        pods = (pod for pod in self._pods.values() if is_pod_of(self._job, pod.metadata))
        return self._choice.of(pods, self._ranks)

    def _running(self) -> list[asyncio.Task[None]]:
        return [task for task in self._tasks.values() if not task.done()]

    def _introduce(self) -> None:
        """Notify the user if the followed members are not the expected ones."""
        chosen = self._chosen()
        if not chosen:
            self._notify("no chosen member runs yet; waiting for one")
        elif self._choice.needs_ranks and not self._ranks:
            self._notify(
                f"no ranks are known yet, so members are chosen by their index: {_names(chosen)}"
            )
        if chosen and (missing := self._choice.missing(chosen, self._ranks)):
            self._notify(f"there is no member of rank {missing} now; waiting for it")
        waiting = len(chosen) - MAX_FOLLOWED
        if waiting > 0:
            self._notify(f"{MAX_FOLLOWED} logs are followed at a time; {waiting} members wait")
