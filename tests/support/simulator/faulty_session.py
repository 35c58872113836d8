"""What can go wrong between the operator and the cluster: a session with faults, and processes that die.

Two things are taken for granted, because without them nobody could keep "never two live pods for one member": the API
server carries out a request before its client gives up waiting, or never; and what a dead process had sent to create
has arrived, or never will, when its lease has run out. Patches and deletes may arrive later than that.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_kube.errors import Conflict, Expired, KubeError, NotFound, Refused, TryLater
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import EVENTS, PODS, Resource
from elasticjob_kube.session import WatchEvent
from elasticjob_operator.cluster_watches import watch_nodes
from elasticjob_operator.core.model.observed import Observed, Pod
from elasticjob_operator.events import Events
from elasticjob_operator.executor import Executor
from elasticjob_operator.pod_executor import PodExecutor
from elasticjob_operator.reconcile import Reconciler
from elasticjob_operator.store import JobKey, Store
from elasticjob_operator.work_queue import Retry, WorkQueue

from tests.support.simulator.cluster import CUSTOM, DEFAULTS, FakeKube

Json = dict[str, Any]


@dataclass
class Faults:
    """How bad it is. Probabilities are per request or per watch event; `denied_until` is a time."""

    latency: float = 0.0
    error_rate: float = 0.0
    lost_answer_rate: float = 0.0
    conflict_rate: float = 0.0
    watch_delay: float = 0.0
    delayed_kinds: frozenset[Resource] = frozenset()
    broken_watch_rate: float = 0.0
    repeated_event_rate: float = 0.0
    denied_until: float = 0.0
    denied_kinds: tuple[Resource, ...] = (PODS,)
    no_resize: bool = False


@dataclass
class Network:
    """All that has ever been told to watches, and what happens to be wrong with it now."""

    kube: FakeKube
    chance: random.Random
    faults: Faults
    trace: Callable[..., None]
    events: dict[Resource, list[tuple[int, float, WatchEvent]]] = field(default_factory=lambda: defaultdict(list))
    waiters: list[asyncio.Future[None]] = field(default_factory=list)

    def publish(self, kind: str, resource: Resource, raw: bytes, version: int) -> None:
        now = asyncio.get_running_loop().time()
        self.events[resource].append((version, now, WatchEvent(kind, msgspec.Raw(raw))))
        waiters, self.waiters = self.waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)

    async def wait_for_more(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(future)
        await future


class FaultySession:
    """The part of `Kube` that the operator uses, over a wire on which things get lost."""

    def __init__(self, network: Network, owner: OperatorProcess) -> None:
        self._network, self._kube, self._chance, self._owner = network, network.kube, network.chance, owner

    def low_priority(self) -> FaultySession:
        return self

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        found: Json = await self._call("get", resource, name, lambda: self._kube.get(resource, namespace, name))
        return found

    async def list(self, resource: Resource, namespace: str | None = None, **options: Any) -> Any:
        return await self._call("list", resource, "", lambda: self._kube.list(resource, namespace, **options))

    async def create(self, resource: Resource, namespace: str | None, body: Any) -> Json:
        if resource == EVENTS:
            return {}
        name = body["metadata"]["name"]
        made: Json = await self._call("create", resource, name, lambda: self._kube.create(resource, namespace, body))
        return made

    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Any, **options: Any) -> Json:
        if options.get("subresource") == "resize" and self._network.faults.no_resize:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")
        patched: Json = await self._call(
            "patch", resource, name, lambda: self._kube.patch(resource, namespace, name, body, **options)
        )
        return patched

    async def delete(self, resource: Resource, namespace: str | None, name: str, **options: Any) -> Json:
        gone: Json = await self._call(
            "delete", resource, name, lambda: self._kube.delete(resource, namespace, name, **options)
        )
        return gone

    async def watch(
        self, resource: Resource, namespace: str | None = None, *, resource_version: str = "", **_: Any
    ) -> AsyncIterator[WatchEvent]:
        """Yield changes in their order, late, some twice, until the connection breaks."""
        events, chance, loop = self._network.events[resource], self._chance, asyncio.get_running_loop()
        position = bisect_right(events, int(resource_version), key=lambda entry: entry[0])
        while True:
            while position < len(events):
                _version, since, event = events[position]
                position += 1
                faults = self._network.faults
                if resource in faults.delayed_kinds:
                    delay = since + chance.random() ** 3 * faults.watch_delay - loop.time()
                    if delay > 0:
                        await asyncio.sleep(delay)
                if chance.random() < faults.broken_watch_rate:
                    self._network.trace("watch of", resource.plural, "breaks")
                    if chance.random() < 0.5:
                        raise Expired(410, "Expired", "too old resource version")
                    raise TryLater(0, "ClientError", "connection reset")
                yield event
                if chance.random() < faults.repeated_event_rate:
                    yield event
            await self._network.wait_for_more()

    async def _call(
        self, verb: str, resource: Resource, name: str, execute: Callable[[], Coroutine[Any, Any, Any]]
    ) -> Any:
        loop, chance, faults = asyncio.get_running_loop(), self._chance, self._network.faults
        answer: asyncio.Future[Any] = loop.create_future()
        if self._owner.dead:
            return await answer
        fault = self._fault(verb, resource, faults, loop.time())
        lost = fault is None and chance.random() < faults.lost_answer_rate

        def arrive(*, late: bool = False) -> None:
            if self._owner.dead and verb == "create" and self._owner.superseded:
                return
            if self._owner.dead and verb != "create" and not late:
                loop.call_later(chance.choice((0.0, 5.0, 20.0)), partial(arrive, late=True))
                return
            if self._owner.dead:
                self._network.trace(verb, name, "of a dead operator arrives")
            result: Any = None
            error: KubeError | None = fault
            if fault is None:
                self._kube.actor = self._owner
                try:
                    result = _run_without_waiting(execute())
                except KubeError as refused:
                    error = refused
                except AssertionError as broken:
                    loop.fail(broken)  # type: ignore[attr-defined]
                    return
                finally:
                    self._kube.actor = None
            if lost:
                error = TryLater(0, "TimeoutError", "no answer")
            if error is not None:
                self._network.trace(
                    verb, resource.plural, name, "->", type(error).__name__, error.status, error.message
                )
            pause = chance.choice((0.1, 30.0)) if lost else chance.random() * faults.latency
            loop.call_later(pause, back, result, error)

        def back(result: Any, error: KubeError | None) -> None:
            if self._owner.dead or answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        loop.call_later(chance.random() ** 2 * faults.latency, arrive)
        if verb not in ("get", "list"):
            self._owner.on_write()
        return await answer

    def _fault(self, verb: str, resource: Resource, faults: Faults, now: float) -> KubeError | None:
        chance = self._chance
        if now < faults.denied_until and resource in faults.denied_kinds and verb in ("create", "patch"):
            what = "exceeded quota: pods, requested: pods=1" if resource == PODS else "admission webhook says no"
            return Refused(403, "Forbidden", what)
        if verb != "get" and verb != "list" and chance.random() < faults.conflict_rate:
            return Conflict(409, "Conflict", "the object has been modified")
        if chance.random() < faults.error_rate:
            status = chance.choice((0, 429, 500, 503))
            return TryLater(status, "", f"status {status}", 1.0 if status == 429 else None)
        return None


class _RecordingStore(Store):
    """Remembers what the last decision was computed from, so that its order can be checked."""

    last: Observed | None = None

    def observed(self, job: ElasticJob) -> Observed:
        self.last = super().observed(job)
        return self.last


class OperatorProcess:
    """One life of the operator's process, wired like the real one."""

    def __init__(self, network: Network, number: int) -> None:
        self.number, self.dead, self.superseded = number, False, False
        self.on_write: Callable[[], None] = lambda: None
        self._network, self._session = network, FaultySession(network, self)
        kube: Any = self._session
        self.store = _RecordingStore()
        self.pods: Informer[Pod] = Informer(kube, PODS, Pod, label_selector=names.LABEL_JOB_UID, on_change=self._on_pod)
        self._events = Events(kube, f"operator-{number}")
        executor = Executor(kube, self.store, PodExecutor(kube, self.pods, self._events), self._events)
        self._reconciler = Reconciler(kube, self.store, executor, DEFAULTS)
        self._queue: WorkQueue[JobKey] = WorkQueue(self._work)
        self._all_listed = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self.pods.run()), asyncio.create_task(self._run())]

    def kill(self) -> None:
        """End it as SIGKILL does: from now on it sends nothing, and hears no answer."""
        self.dead = True
        for task in self._tasks:
            task.cancel()
        self._tasks.append(asyncio.create_task(self._queue.abort()))

    async def _run(self) -> None:
        await self.pods.synced.wait()
        versions = {resource: await self._list(resource) for resource in CUSTOM}
        self._all_listed = True
        kube: Any = self._session
        self._tasks.append(asyncio.create_task(watch_nodes(kube, self.store, self._queue.add)))
        for key in self.store.job_keys():
            self._queue.add(key)
        self._tasks += [asyncio.create_task(self._watch(resource, versions[resource])) for resource in CUSTOM]

    async def _list(self, resource: Resource) -> str:
        """Tell what is there as kopf does: not what has gone meanwhile."""
        while True:
            try:
                page = await self._session.list(resource)
            except KubeError:
                await asyncio.sleep(1)
                continue
            for item in page["items"]:
                self._on_object(resource, None, item)
            version: str = page["metadata"]["resourceVersion"]
            return version

    async def _watch(self, resource: Resource, version: str) -> None:
        while True:
            try:
                async for event in self._session.watch(resource, resource_version=version):
                    item = msgspec.json.decode(event.object)
                    self._on_object(resource, event.type, item)
                    version = item["metadata"]["resourceVersion"]
            except Expired:
                version = await self._list(resource)
            except KubeError:
                await asyncio.sleep(1)

    def _on_object(self, resource: Resource, kind: str | None, item: Json) -> None:
        if (key := self.store.update(resource, kind, item)) and self._all_listed:
            self._queue.add(key)

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        if (key := self.store.update_pod(before, after)) and self._all_listed:
            self._queue.add(key)

    async def _work(self, key: JobKey) -> float | None:
        """Do the work; a mistake in the code, which the queue would only log, ends the history."""
        try:
            return await self._reconciler.reconcile(key)
        except Retry:
            raise
        except Exception as error:
            asyncio.get_running_loop().fail(error)  # type: ignore[attr-defined]
            raise


def _run_without_waiting(work: Coroutine[Any, Any, Any]) -> Any:
    """Run what never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the cluster in memory answers at once")
