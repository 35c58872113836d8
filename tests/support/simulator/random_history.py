"""One random history of a job: users, kubelets, agents and operators that do what they like, then peace, then rest.

Everything follows from one seed: the same seed is the same history, to the last write.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import msgspec
from elasticjob_api import names
from elasticjob_kube.resources import ELASTIC_JOBS, NODES, PODS, SCALE_INS, SCALE_OUTS, SCALE_PLANS, Resource

from tests.support.master.virtual_time import START, VirtualLoop
from tests.support.simulator.at_rest import check_at_rest
from tests.support.simulator.cluster_reactions import Nature
from tests.support.simulator.faults import Process, Weather, Wire
from tests.support.simulator.promises import Promises
from tests.support.simulator.users import Users
from tests.support.simulator.world import CUSTOM, FakeKube

LEASE_SECONDS = 15.0
QUIET_SECONDS = 700.0
"""Longer than any pause of the operator, back-off of a restart or time-out of a plan in these histories."""
LONGEST = 40_000.0
MOST_WRITES = 5_000
_TRACED = 70


class History:
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.loop = VirtualLoop()
        self.kube = FakeKube(now=self.loop.time)
        self.promises = Promises(self.loop.time)
        self.weather = Weather()
        self.trace: deque[tuple[Any, ...]] = deque(maxlen=4000)
        self.wire = Wire(self.kube, self.chance, self.weather, self.note)
        self.kube.told = self._told
        self.nature = Nature(self.kube, self.chance, self.note)
        self.users = Users(self.kube, self.chance, self.note)
        self.processes: list[Process] = []
        self.last_change = 0.0
        self.traced = _TRACED

    def run(self) -> None:
        with _quiet():
            self.loop.run(self._main())

    def note(self, *words: Any) -> None:
        self.trace.append((self.loop.time(), *words))

    def told_last(self) -> str:
        """Return the end of the history, for people."""
        lines = [line for entry in self.trace if (line := _line(entry))]
        return "\n".join(lines[-self.traced :])

    # --- the course of things ---------------------------------------------------------------------------------------

    async def _main(self) -> None:
        chance = self.chance
        self._storm()
        await self.nature.build()
        await self.users.apply_job()
        self._start_operator()
        pause = chance.choice((0.5, 4.0, 15.0))
        for _ in range(chance.randrange(3, 70)):
            await asyncio.sleep(chance.expovariate(1 / pause))
            await self._happen()
        self.note("--- the faults stop")
        await self._make_peace()
        await self._rest()
        check_at_rest(self.kube, self.loop.time())
        # What was deleted while a watch was broken only a new operator finds out; it may prune the history then.
        self.note("--- another operator at rest")
        for _ in range(2):
            version = self.kube.version
            self._replace_operator(wait=0.0)
            await asyncio.sleep(100)
        assert self.kube.version == version, "the operator writes at rest"
        check_at_rest(self.kube, self.loop.time())

    async def _happen(self) -> None:
        number = self.chance.random()
        if number < 0.06:
            self._kill_at_next_write()
        elif number < 0.08:
            self._replace_operator(wait=self.chance.choice((0.0, LEASE_SECONDS)))
        elif number < 0.16:
            self._storm()
        elif number < 0.45:
            await self.nature.strike()
        else:
            await self.users.act()

    def _storm(self) -> None:
        chance, weather, now = self.chance, self.weather, self.loop.time()
        bad = chance.random() < 0.6
        weather.latency = chance.choice((0.01, 0.5, 3.0)) if bad else 0.02
        weather.failing = chance.choice((0.0, 0.1, 0.5)) if bad else 0.0
        weather.losing = chance.choice((0.0, 0.2, 0.6)) if bad else 0.0
        weather.conflicts = chance.choice((0.0, 0.1)) if bad else 0.0
        weather.watch_delay = chance.choice((0.0, 2.0, 20.0)) if bad else 0.05
        weather.slow = frozenset(kind for kind in (*CUSTOM, PODS, NODES) if chance.random() < 0.6)
        weather.cutting = chance.choice((0.0, 0.05, 0.3)) if bad else 0.0
        weather.repeating = chance.choice((0.0, 0.3)) if bad else 0.0
        weather.denied_until = now + chance.uniform(5, 90) if chance.random() < 0.1 else 0.0
        weather.denied = chance.choice(((PODS,), (PODS,), (ELASTIC_JOBS,), (SCALE_PLANS,), (SCALE_INS, SCALE_OUTS)))
        weather.no_resize = chance.random() < 0.2
        self.note("weather", *(f"{name}={value}" for name, value in vars(weather).items() if value and name != "slow"))

    def _start_operator(self) -> None:
        self.processes.append(Process(self.wire, len(self.processes)))
        self.note("operator", len(self.processes) - 1, "starts")
        self.processes[-1].start()

    def _kill_at_next_write(self) -> None:
        """Kill the operator when it has just sent a write, which arrives or does not."""
        wait = self.chance.choice((0.0, 0.0, LEASE_SECONDS))
        self.processes[-1].sent = lambda: self._replace_operator(wait=wait)

    def _replace_operator(self, *, wait: float) -> None:
        """Kill the operator; the next one starts at once or when the lease has run out."""
        old = self.processes[-1]
        if old.dead:
            return
        self.note("operator", old.number, "is killed")
        old.kill()

        def take_over() -> None:
            old.superseded = True
            self._start_operator()

        self.loop.call_later(wait, take_over)

    async def _make_peace(self) -> None:
        """No faults any more: whatever hangs is let go, and the operator lives."""
        self.processes[-1].sent = lambda: None
        for name, value in vars(Weather(latency=0.01)).items():
            setattr(self.weather, name, value)
        self.nature.heal()
        self.users.heal()
        await asyncio.sleep(LEASE_SECONDS + 1)

    async def _rest(self) -> None:
        begun = self.loop.time()
        while self.loop.time() - self.last_change < QUIET_SECONDS:
            await asyncio.sleep(self.last_change + QUIET_SECONDS + 1 - self.loop.time())
            assert self.loop.time() - begun < LONGEST, "the cluster does not come to rest"

    def _told(self, kind: str, resource: Resource, name: str, raw: bytes) -> None:
        self.last_change = self.loop.time()
        assert self.kube.version < MOST_WRITES, "the writes have no end"
        self.trace.append((self.last_change, kind, resource, name, raw, self.kube.actor))
        self.promises.told(kind, resource, name, raw, self.kube.actor)
        self.wire.tell(kind, resource, raw, self.kube.version)
        self.nature.told(kind, resource, name, raw)


def run(seed: int) -> None:
    """Run one history.

    Raises:
        AssertionError: a promise was broken; the message tells how it came to that.
    """
    history = History(seed)
    try:
        history.run()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise AssertionError(f"{history.told_last()}\n\nseed {seed}: {text}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """No log, and secrets that are always the same."""
    keys = (names.SECRET_TOKEN, names.SECRET_CA, names.SECRET_CERT, names.SECRET_KEY)
    secrets: Callable[..., Any] = mock.Mock(return_value=dict.fromkeys(keys, b"secret"))
    logging.disable(logging.CRITICAL)
    try:
        with mock.patch("elasticjob_operator.ensure_infrastructure.new_job_secrets", secrets):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _line(entry: tuple[Any, ...]) -> str:
    time, *words = entry
    if len(words) == 5 and isinstance(words[1], Resource):
        kind, resource, name, raw, actor = words
        if resource not in (PODS, ELASTIC_JOBS, SCALE_PLANS, SCALE_INS, SCALE_OUTS):
            return ""
        who = f"operator {actor.number}" if actor is not None else "world"
        return f"{time - START:8.2f} {who}: {kind} {resource.kind} {name} {_brief(resource, msgspec.json.decode(raw))}"
    return f"{time - START:8.2f} {' '.join(str(word) for word in words)}"


def _brief(resource: Resource, item: dict[str, Any]) -> str:
    status, metadata = item.get("status", {}), item["metadata"]
    leaving = " leaving" if "deletionTimestamp" in metadata else ""
    if resource == PODS:
        kept = {key: value for key, value in status.items() if key not in ("phase",)}
        return f"{status.get('phase')}{leaving} {kept or ''}"
    if resource == ELASTIC_JOBS:
        sizes = {
            role: (spec.get("replicas", 1), status.get("replicaStatuses", {}).get(role, {}))
            for role, spec in item["spec"]["replicaSpecs"].items()
        }
        told = [status.get("phase"), status.get("currentPlan"), status.get("message"), item["spec"].get("runPolicy")]
        return f"{metadata['uid'][:8]}{leaving} {told} {sizes} master {status.get('master')}"
    spec = {key: value for key, value in item["spec"].items() if key != "jobName"} if not status else ""
    return f"{metadata['uid'][:8]}{leaving} {status or ''} {spec}"
