"""A Kubernetes session with faults.

Late, failing and lost requests, broken watches, and processes that die. Two things are assumed,
because without them no operator could ensure that a member never has two live pods: the API server
executes a request before its client's timeout, or never; and the creates of a dead process are
executed before its lease has run out, or never. Its patches and deletes may be executed later than
that.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import msgspec
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Conflict, Expired, KubeError, NotFound, Refused, TryLater
from elasticjob_kube.resources import CONFIG_MAPS, EVENTS, PODS, Resource
from elasticjob_kube.session import WatchEvent

from tests.support.simulator.fake_kube import FakeKube, is_selected


@dataclass
class Faults:
    """The faults that are injected now. Rates are probabilities per request or watch event.

    Attributes:
        latency: longest time of a request, and of its answer, on the network, in seconds.
        error_rate: requests that are answered with 429 or 5xx, or not at all.
        lost_answer_rate: requests that are executed, but whose answer is lost.
        conflict_rate: writes that are answered with a conflict although there is none.
        watch_delay: longest delay of a watch event, in seconds, for the kinds in `delayed_kinds`.
        broken_watch_rate: watch events before which the watch's connection breaks.
        repeated_event_rate: watch events that are sent twice.
        denied_until: time until which writes of `denied_kinds` are refused.
        no_resize: whether the cluster has no in-place resize.
    """

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
    """The network between operators and the API server: its faults and all watch events sent."""

    kube: FakeKube
    rng: random.Random
    faults: Faults
    trace: Callable[..., None]
    events: dict[Resource, list[tuple[int, float, WatchEvent]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    waiters: list[asyncio.Future[None]] = field(default_factory=list)

    def publish(self, kind: str, resource: Resource, raw: bytes, version: int) -> None:
        now = asyncio.get_running_loop().time()
        self.events[resource].append((version, now, WatchEvent(kind, msgspec.Raw(raw))))
        waiters = self.waiters
        self.waiters = []
        for future in waiters:
            if not future.done():
                future.set_result(None)

    async def wait_for_more(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(future)
        await future


class Client(Protocol):
    """The process that owns a session.

    Attributes:
        superseded: whether another process has got the lease after this one died.
    """

    dead: bool
    superseded: bool
    on_write: Callable[[], None]


class FaultySession:
    """The part of `Kube` that the operator uses, over a network that loses messages."""

    def __init__(self, network: Network, owner: Client) -> None:
        self._network = network
        self._kube = network.kube
        self._rng = network.rng
        self._owner = owner
        self.clock = network.kube.clock

    def low_priority(self) -> FaultySession:
        return self

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        found: Json = await self._call(
            "get", resource, name, lambda: self._kube.get(resource, namespace, name)
        )
        return found

    async def list(self, resource: Resource, namespace: str | None = None, **options: Any) -> Any:
        return await self._call(
            "list", resource, "", lambda: self._kube.list(resource, namespace, **options)
        )

    async def create(self, resource: Resource, namespace: str | None, body: Any) -> Json:
        if resource == EVENTS:
            return {}
        name = body["metadata"]["name"]
        made: Json = await self._call(
            "create", resource, name, lambda: self._kube.create(resource, namespace, body)
        )
        return made

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Any, **options: Any
    ) -> Json:
        if options.get("subresource") == "resize" and self._network.faults.no_resize:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")
        patched: Json = await self._call(
            "patch",
            resource,
            name,
            lambda: self._kube.patch(resource, namespace, name, body, **options),
        )
        return patched

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, **options: Any
    ) -> Json:
        gone: Json = await self._call(
            "delete",
            resource,
            name,
            lambda: self._kube.delete(resource, namespace, name, **options),
        )
        return gone

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str = "",
        label_selector: str = "",
        **_: Any,
    ) -> AsyncIterator[WatchEvent]:
        """Yield changes in their order, late, some twice, until the connection breaks.

        An object without the label that is selected by is reported as deleted, as the API server
        does it.
        """
        events = self._network.events[resource]
        rng = self._rng
        loop = asyncio.get_running_loop()
        position = bisect_right(events, int(resource_version), key=lambda entry: entry[0])
        while True:
            while position < len(events):
                _version, since, event = events[position]
                position += 1
                faults = self._network.faults
                if resource in faults.delayed_kinds:
                    delay = since + rng.random() ** 3 * faults.watch_delay - loop.time()
                    if delay > 0:
                        await asyncio.sleep(delay)
                if rng.random() < faults.broken_watch_rate:
                    self._network.trace("watch of", resource.plural, "breaks")
                    if rng.random() < 0.5:
                        raise Expired(410, "Expired", "too old resource version")
                    raise TryLater(0, "ClientError", "connection reset")
                if not is_selected(msgspec.json.decode(event.object), label_selector):
                    event = WatchEvent("DELETED", event.object)
                yield event
                if rng.random() < faults.repeated_event_rate:
                    yield event
            await self._network.wait_for_more()

    async def _call(
        self,
        verb: str,
        resource: Resource,
        name: str,
        execute: Callable[[], Coroutine[Any, Any, Any]],
    ) -> Any:
        loop = asyncio.get_running_loop()
        rng = self._rng
        faults = self._network.faults
        answer: asyncio.Future[Any] = loop.create_future()
        if self._owner.dead:
            return await answer
        fault = self._fault(verb, resource, faults, loop.time())
        lost = fault is None and rng.random() < faults.lost_answer_rate

        def arrive(*, late: bool = False) -> None:
            if self._owner.dead and verb == "create" and self._owner.superseded:
                return
            if self._owner.dead and verb != "create" and not late:
                loop.call_later(rng.choice((0.0, 5.0, 20.0)), partial(arrive, late=True))
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
            if error is not None and resource != CONFIG_MAPS:  # which is asked for all the time
                self._network.trace(
                    verb,
                    resource.plural,
                    name,
                    "->",
                    type(error).__name__,
                    error.status,
                    error.message,
                )
            pause = rng.choice((0.1, 30.0)) if lost else rng.random() * faults.latency
            loop.call_later(pause, back, result, error)

        def back(result: Any, error: KubeError | None) -> None:
            if self._owner.dead or answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        loop.call_later(rng.random() ** 2 * faults.latency, arrive)
        if verb not in ("get", "list"):
            self._owner.on_write()
        return await answer

    def _fault(self, verb: str, resource: Resource, faults: Faults, now: float) -> KubeError | None:
        rng = self._rng
        if (
            now < faults.denied_until
            and resource in faults.denied_kinds
            and verb in ("create", "patch")
        ):
            what = (
                "exceeded quota: pods, requested: pods=1"
                if resource == PODS
                else "admission webhook says no"
            )
            return Refused(403, "Forbidden", what)
        if verb != "get" and verb != "list" and rng.random() < faults.conflict_rate:
            return Conflict(409, "Conflict", "the object has been modified")
        if rng.random() < faults.error_rate:
            status = rng.choice((0, 429, 500, 503))
            return TryLater(status, "", f"status {status}", 1.0 if status == 429 else None)
        return None


def _run_without_waiting(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits, and return its result."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the cluster in memory answers at once")
