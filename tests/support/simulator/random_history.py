"""One random history of a job.

Random acts of users, pods and operators with faults, then none, until it is quiet.
Everything follows from one seed: the same seed gives the same history, to the last write.
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
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    NODES,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    Resource,
)

from tests.support.master.virtual_time import START, VirtualLoop
from tests.support.simulator.cluster import CUSTOM
from tests.support.simulator.cluster_reactions import ClusterReactions
from tests.support.simulator.fake_kube import FakeKube
from tests.support.simulator.faulty_session import Faults, Network
from tests.support.simulator.final_checks import check_final_state
from tests.support.simulator.invariants import Invariants
from tests.support.simulator.operator_process import OperatorProcess
from tests.support.simulator.raw_objects import MOST_RETAINED
from tests.support.simulator.users import Users

LEASE_SECONDS = 15.0
QUIET_SECONDS = 700.0
"""Longer than any pause of the operator, back-off of a restart or time-out of a plan in these
histories.
"""
MAX_SECONDS = 40_000.0
MAX_WRITES = 5_000
_LINES_SHOWN = 70


class History:
    """The history of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loop = VirtualLoop()
        self.kube = FakeKube(now=self.loop.time)
        self.invariants = Invariants(self.loop.time)
        self.faults = Faults()
        self.trace: deque[tuple[Any, ...]] = deque(maxlen=4000)
        self.network = Network(self.kube, self.rng, self.faults, self.note)
        self.kube.on_change = self._on_change
        self.reactions = ClusterReactions(self.kube, self.rng, self.note)
        self.users = Users(self.kube, self.rng, self.note)
        self.processes: list[OperatorProcess] = []
        self.last_change = 0.0
        self.lines_shown = _LINES_SHOWN

    def run(self) -> None:
        most = mock.patch(
            "elasticjob_operator.core.members.retained_pods.MAX_RETAINED_PODS", MOST_RETAINED
        )
        with most, _without_logs_and_random_secrets():
            self.loop.run(self._main())

    def note(self, *parts: Any) -> None:
        self.trace.append((self.loop.time(), *parts))

    def last_lines(self) -> str:
        """Return the last lines of the history, for the message of a failed test."""
        lines = [line for entry in self.trace if (line := _line(entry))]
        return "\n".join(lines[-self.lines_shown :])

    # --- the course of a history
    # ------------------------------------------------------------------------------------

    async def _main(self) -> None:
        rng = self.rng
        self._change_faults()
        await self.reactions.create_nodes()
        await self.users.apply_job()
        self._start_operator()
        pause = rng.choice((0.5, 4.0, 15.0))
        for _ in range(rng.randrange(3, 70)):
            await asyncio.sleep(rng.expovariate(1 / pause))
            await self._random_event()
        self.note("--- the faults stop")
        await self._stop_faults()
        await self._wait_until_quiet()
        check_final_state(self.kube, self.loop.time())
        # A new operator notices objects that were deleted while a watch was broken; it may delete
        # old plans then.
        self.note("--- another operator at rest")
        for _ in range(2):
            version = self.kube.version
            self._replace_operator(wait=0.0)
            await asyncio.sleep(100)
        assert self.kube.version == version, "the operator writes at rest"
        check_final_state(self.kube, self.loop.time())

    async def _random_event(self) -> None:
        number = self.rng.random()
        if number < 0.06:
            self._kill_at_next_write()
        elif number < 0.08:
            self._replace_operator(wait=self.rng.choice((0.0, LEASE_SECONDS)))
        elif number < 0.16:
            self._change_faults()
        elif number < 0.45:
            await self.reactions.disturb_pods()
        else:
            await self.users.act()

    def _change_faults(self) -> None:
        rng = self.rng
        faults = self.faults
        now = self.loop.time()
        bad = rng.random() < 0.6
        faults.latency = rng.choice((0.01, 0.5, 3.0)) if bad else 0.02
        faults.error_rate = rng.choice((0.0, 0.1, 0.5)) if bad else 0.0
        faults.lost_answer_rate = rng.choice((0.0, 0.2, 0.6)) if bad else 0.0
        faults.conflict_rate = rng.choice((0.0, 0.1)) if bad else 0.0
        faults.watch_delay = rng.choice((0.0, 2.0, 20.0)) if bad else 0.05
        faults.delayed_kinds = frozenset(
            kind for kind in (*CUSTOM, PODS, NODES) if rng.random() < 0.6
        )
        faults.broken_watch_rate = rng.choice((0.0, 0.05, 0.3)) if bad else 0.0
        faults.repeated_event_rate = rng.choice((0.0, 0.3)) if bad else 0.0
        faults.denied_until = now + rng.uniform(5, 90) if rng.random() < 0.1 else 0.0
        faults.denied_kinds = rng.choice(
            ((PODS,), (PODS,), (ELASTIC_JOBS,), (SCALE_PLANS,), (SCALE_INS, SCALE_OUTS))
        )
        faults.no_resize = rng.random() < 0.2
        self.note(
            "faults",
            *(
                f"{name}={value}"
                for name, value in vars(faults).items()
                if value and name != "delayed_kinds"
            ),
        )

    def _start_operator(self) -> None:
        self.processes.append(OperatorProcess(self.network, len(self.processes)))
        self.note("operator", len(self.processes) - 1, "starts")
        self.processes[-1].start()

    def _kill_at_next_write(self) -> None:
        """Kill the operator just after it sends a write, which may or may not be executed."""
        wait = self.rng.choice((0.0, 0.0, LEASE_SECONDS))
        self.processes[-1].on_write = lambda: self._replace_operator(wait=wait)

    def _replace_operator(self, *, wait: float) -> None:
        """Kill the operator; the next one starts at once or when the lease has expired."""
        old = self.processes[-1]
        if old.dead:
            return
        self.note("operator", old.number, "is killed")
        old.kill()

        def take_over() -> None:
            old.superseded = True
            self._start_operator()

        self.loop.call_later(wait, take_over)

    async def _stop_faults(self) -> None:
        """End all faults: hanging pods continue, and the operator is no longer killed."""
        self.processes[-1].on_write = lambda: None
        for name, value in vars(Faults(latency=0.01)).items():
            setattr(self.faults, name, value)
        self.reactions.stop_faults()
        self.users.stop_faults()
        await asyncio.sleep(LEASE_SECONDS + 1)

    async def _wait_until_quiet(self) -> None:
        begun = self.loop.time()
        while self.loop.time() - self.last_change < QUIET_SECONDS:
            await asyncio.sleep(self.last_change + QUIET_SECONDS + 1 - self.loop.time())
            assert self.loop.time() - begun < MAX_SECONDS, "the cluster does not come to rest"

    def _on_change(self, kind: str, resource: Resource, name: str, raw: bytes) -> None:
        self.last_change = self.loop.time()
        assert self.kube.version < MAX_WRITES, "the writes have no end"
        self.trace.append((self.last_change, kind, resource, name, raw, self.kube.actor))
        self.invariants.check(kind, resource, name, raw, self.kube.actor)
        self.network.publish(kind, resource, raw, self.kube.version)
        self.reactions.on_change(kind, resource, name, raw)


def run(seed: int) -> None:
    """Run one history.

    Raises:
        AssertionError: an invariant was broken; the message has the last lines of the history.
    """
    history = History(seed)
    try:
        history.run()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise AssertionError(f"{history.last_lines()}\n\nseed {seed}: {text}") from error


@contextmanager
def _without_logs_and_random_secrets() -> Iterator[None]:
    """Disable logging, and replace the random secrets with fixed ones."""
    keys = (
        names.SECRET_TOKEN,
        names.SECRET_CA,
        names.SECRET_CERT,
        names.SECRET_KEY,
        names.SECRET_PEER,
    )
    secrets: Callable[..., Any] = mock.Mock(return_value=dict.fromkeys(keys, b"secret"))
    logging.disable(logging.CRITICAL)
    try:
        with mock.patch("elasticjob_operator.ensure_infrastructure.new_job_secrets", secrets):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _line(entry: tuple[Any, ...]) -> str:
    time, *parts = entry
    if len(parts) == 5 and isinstance(parts[1], Resource):
        kind, resource, name, raw, actor = parts
        if resource not in (PODS, ELASTIC_JOBS, SCALE_PLANS, SCALE_INS, SCALE_OUTS):
            return ""
        who = f"operator {actor.number}" if actor is not None else "world"
        shown = _brief(resource, msgspec.json.decode(raw))
        return f"{time - START:8.2f} {who}: {kind} {resource.kind} {name} {shown}"
    return f"{time - START:8.2f} {' '.join(str(part) for part in parts)}"


def _brief(resource: Resource, item: dict[str, Any]) -> str:
    status = item.get("status", {})
    metadata = item["metadata"]
    leaving = " leaving" if "deletionTimestamp" in metadata else ""
    if resource == PODS:
        kept = {key: value for key, value in status.items() if key not in ("phase",)}
        return f"{status.get('phase')}{leaving} {kept or ''}"
    if resource == ELASTIC_JOBS:
        sizes = {
            role: (spec.get("replicas", 1), status.get("replicaStatuses", {}).get(role, {}))
            for role, spec in item["spec"]["replicaSpecs"].items()
        }
        shown = [
            status.get("phase"),
            status.get("currentPlan"),
            status.get("message"),
            item["spec"].get("runPolicy"),
        ]
        return f"{metadata['uid'][:8]}{leaving} {shown} {sizes} master {status.get('master')}"
    spec = (
        {key: value for key, value in item["spec"].items() if key != "jobName"}
        if not status
        else ""
    )
    return f"{metadata['uid'][:8]}{leaving} {status or ''} {spec}"
