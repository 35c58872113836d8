"""JobService: questions about the running job, asked once or watched.

A watch costs one comparison a second. Its message is made once for all who watch the same, and only sent when it is
new; a slow reader misses values in between and delays nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import grpc
from elasticjob_api.v1 import agent_pb2
from elasticjob_api.v1 import job_pb2 as pb
from elasticjob_api.v1.job_pb2_grpc import JobServiceServicer

from elasticjob_master.config import Config
from elasticjob_master.controller import Controller
from elasticjob_master.server import protobuf
from elasticjob_master.server.autoscaling import autoscaling

MOST_WATCHES = 256
_WATCH_SECONDS = 1.0
_SHARED_SECONDS = 0.5
_PHASES = {
    "waiting": pb.JOB_PHASE_WAITING,
    "training": pb.JOB_PHASE_TRAINING,
    "reforming": pb.JOB_PHASE_REFORMING,
    "finishing": pb.JOB_PHASE_FINISHING,
}
T = TypeVar("T")


class _Shared(Generic[T]):
    """A value that many watch: made once for all of them, and the same object for as long as nothing has changed."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._value: T | None = None
        self._made_at = 0.0

    def get(self, fresh: bool) -> T:
        """Return the value; a little old unless it must be fresh."""
        now = asyncio.get_running_loop().time()
        if self._value is None or fresh or now - self._made_at >= _SHARED_SECONDS:
            value, self._made_at = self._make(), now
            if value != self._value:
                self._value = value
        assert self._value is not None
        return self._value


class JobService(JobServiceServicer):
    """Status, members, world, progress, history, plans and auto-scaling."""

    def __init__(self, controller: Controller, config: Config) -> None:
        self._controller = controller
        self._config = config
        self._ending = asyncio.Event()
        self._watches = 0
        self._shared_status = _Shared(self._status)
        self._shared_members = _Shared(self._members)
        self._shared_progress = _Shared(self._progress)
        self._shared_plans = _Shared(self._plans)
        self._shared_autoscaling = _Shared(self._autoscaling)

    def end_watches(self) -> None:
        """Send the last values to those who watch, and end their watches: the master itself is about to end."""
        self._ending.set()

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.JobStatus:  # noqa: D102
        return self._status()

    async def WatchStatus(self, request: pb.WatchStatusRequest, context: Any) -> None:  # type: ignore[override]  # noqa: D102
        await self._watch(context, self._shared_status.get)

    async def GetMembers(self, request: pb.GetMembersRequest, context: Any) -> pb.MemberList:  # noqa: D102
        return self._members()

    async def WatchMembers(self, request: pb.WatchMembersRequest, context: Any) -> None:  # type: ignore[override]  # noqa: D102
        await self._watch(context, self._shared_members.get)

    async def GetProgress(self, request: pb.GetProgressRequest, context: Any) -> pb.Progress:  # noqa: D102
        return self._progress()

    async def WatchProgress(self, request: pb.WatchProgressRequest, context: Any) -> None:  # type: ignore[override]  # noqa: D102
        await self._watch(context, self._shared_progress.get)

    async def GetHistory(self, request: pb.GetHistoryRequest, context: Any) -> pb.History:  # noqa: D102
        history = self._controller.history
        return protobuf.history(history.samples(), history.events())

    async def WatchHistory(self, request: pb.WatchHistoryRequest, context: Any) -> None:  # type: ignore[override]  # noqa: D102
        last_number = -1

        def new_history(fresh: bool) -> pb.History | None:
            nonlocal last_number
            history, before = self._controller.history, last_number
            last_number = history.number
            return protobuf.history(history.samples(before), history.events(before)) if last_number != before else None

        await self._watch(context, new_history)

    async def GetPlans(self, request: pb.GetPlansRequest, context: Any) -> pb.PlanList:  # noqa: D102
        return self._plans()

    async def WatchPlans(self, request: pb.WatchPlansRequest, context: Any) -> None:  # type: ignore[override]  # noqa: D102
        await self._watch(context, self._shared_plans.get)

    async def GetAutoscaling(self, request: pb.GetAutoscalingRequest, context: Any) -> pb.Autoscaling:  # noqa: D102
        return self._autoscaling()

    async def WatchAutoscaling(self, request: pb.WatchAutoscalingRequest, context: Any) -> None:  # type: ignore[override]  # noqa: D102
        await self._watch(context, self._shared_autoscaling.get)

    async def GetWorld(self, request: pb.GetWorldRequest, context: Any) -> agent_pb2.World:  # noqa: D102
        rendezvous = self._controller.rendezvous
        present = [m for m in map(self._controller.members.get, rendezvous.world) if m is not None]
        return agent_pb2.World(round=rendezvous.round, members=map(protobuf.member, present))

    async def _watch(self, context: Any, current: Callable[[bool], object | None]) -> None:
        """Write the message: at once, then when it is new at most once a second, and the last one when the master ends.

        Args:
            context: of the call.
            current: returns the message, fresh or a little old; None, or the same object as before: nothing new.
        """
        if self._watches >= MOST_WATCHES:
            problem = f"{self._watches} watches are open, the most there may be; end one, or use the Get methods"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, problem)
        self._watches += 1
        try:
            last_sent = None
            while True:
                last = self._ending.is_set()
                message = current(last_sent is None or last)
                if message is not None and message is not last_sent:
                    await context.write(message)
                    last_sent = message
                if last:
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), _WATCH_SECONDS)
        finally:
            self._watches -= 1

    def _status(self) -> pb.JobStatus:
        controller = self._controller
        rendezvous = controller.rendezvous
        return pb.JobStatus(
            namespace=self._config.namespace,
            job_name=self._config.job_name,
            phase=_PHASES[controller.phase],
            round=rendezvous.round,
            world_size=len(rendezvous.world),
            progress=self._progress(),
            datasets=map(protobuf.ledger, controller.ledgers),
            master_starts=controller.master_starts,
        )

    def _progress(self) -> pb.Progress:
        controller, progress = self._controller, self._controller.progress
        now = controller.now()
        eta = progress.eta_seconds(now)
        return pb.Progress(
            step=progress.step,
            total_steps=progress.total_steps,
            samples_per_second=progress.samples_per_second(now),
            eta_seconds=-1.0 if eta is None else eta,
            last_report_time=progress.reported_at or 0.0,
            metrics=progress.metrics,
            steps_per_second=progress.steps_per_second(now),
            stalled_since=controller.health_monitor.stalled_since or 0.0,
            stragglers=controller.health_monitor.stragglers,
        )

    def _members(self) -> pb.MemberList:
        return pb.MemberList(members=map(protobuf.member, self._controller.members))

    def _plans(self) -> pb.PlanList:
        return pb.PlanList(plans=map(protobuf.plan, self._controller.plans.summaries()))

    def _autoscaling(self) -> pb.Autoscaling:
        controller = self._controller
        return autoscaling(controller.scaling, controller, controller.now(), wall=time.time())
