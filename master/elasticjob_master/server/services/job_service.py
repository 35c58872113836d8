"""JobService: the state of the running job, once or as a watch.

Each watch compares its message once a second. The message is made once for all watches of the same
method and sent only if it has changed. A slow reader misses messages in between and delays no
other client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import grpc
from elasticjob_api.v1 import agent_pb2
from elasticjob_api.v1 import job_pb2 as pb
from elasticjob_api.v1.job_pb2_grpc import JobServiceServicer

from elasticjob_master.config import Config
from elasticjob_master.controller import Controller
from elasticjob_master.server import answers, protobuf
from elasticjob_master.server.services import errors

MOST_WATCHES = 256
_WATCH_SECONDS = 1.0
_SHARED_SECONDS = 0.5
T = TypeVar("T")


class _Shared(Generic[T]):
    """A message that all watches of one method share. It stays the same object until it changes."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._value: T | None = None
        self._made_at = 0.0

    def get(self, current: bool) -> T:
        """Return the value; unless it must be current, it may be up to half a second old."""
        now = asyncio.get_running_loop().time()
        if self._value is None or current or now - self._made_at >= _SHARED_SECONDS:
            value = self._make()
            self._made_at = now
            if value != self._value:
                self._value = value
        assert self._value is not None
        return self._value


class JobService(JobServiceServicer):
    """Serves status, members, world, progress, history, plans, auto-scaling and report."""

    def __init__(self, controller: Controller, config: Config) -> None:
        self._controller = controller
        self._config = config
        self._ending = asyncio.Event()
        self._watches = 0
        self._shared_status = _Shared(lambda: answers.status(controller, config))
        self._shared_members = _Shared(lambda: answers.members(controller))
        self._shared_progress = _Shared(lambda: answers.progress(controller))
        self._shared_plans = _Shared(lambda: answers.plans(controller))
        self._shared_autoscaling = _Shared(lambda: answers.autoscaling(controller))
        self._shared_report = _Shared(lambda: answers.report(controller, config))

    def end_watches(self) -> None:
        """Send the last message of each watch and end it, before the master ends."""
        self._ending.set()

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.JobStatus:
        return answers.status(self._controller, self._config)

    async def WatchStatus(self, request: pb.WatchStatusRequest, context: Any) -> None:  # type: ignore[override]
        await self._watch(context, self._shared_status.get)

    async def GetMembers(self, request: pb.GetMembersRequest, context: Any) -> pb.MemberList:
        return answers.members(self._controller)

    async def WatchMembers(self, request: pb.WatchMembersRequest, context: Any) -> None:  # type: ignore[override]
        await self._watch(context, self._shared_members.get)

    async def GetProgress(self, request: pb.GetProgressRequest, context: Any) -> pb.Progress:
        return answers.progress(self._controller)

    async def WatchProgress(self, request: pb.WatchProgressRequest, context: Any) -> None:  # type: ignore[override]
        await self._watch(context, self._shared_progress.get)

    async def GetHistory(self, request: pb.GetHistoryRequest, context: Any) -> pb.History:
        return protobuf.history(self._controller.history)

    async def WatchHistory(self, request: pb.WatchHistoryRequest, context: Any) -> None:  # type: ignore[override]
        last_number = -1

        def new_history(_current: bool) -> pb.History | None:
            nonlocal last_number
            history = self._controller.history
            if history.number == last_number:
                return None
            message = protobuf.history(history, last_number)
            last_number = history.number
            return message

        await self._watch(context, new_history)

    async def GetPlans(self, request: pb.GetPlansRequest, context: Any) -> pb.PlanList:
        return answers.plans(self._controller)

    async def WatchPlans(self, request: pb.WatchPlansRequest, context: Any) -> None:  # type: ignore[override]
        await self._watch(context, self._shared_plans.get)

    async def GetAutoscaling(
        self, request: pb.GetAutoscalingRequest, context: Any
    ) -> pb.Autoscaling:
        return answers.autoscaling(self._controller)

    async def WatchAutoscaling(self, request: pb.WatchAutoscalingRequest, context: Any) -> None:  # type: ignore[override]
        await self._watch(context, self._shared_autoscaling.get)

    async def GetWorld(self, request: pb.GetWorldRequest, context: Any) -> agent_pb2.World:
        return answers.world(self._controller)

    async def GetStacks(self, request: pb.GetStacksRequest, context: Any) -> pb.StackList:
        async with errors.abort_on_refusal(context):
            found = await self._controller.collect_stacks(request.ranks)
            return protobuf.stack_list(found, frozenset(request.ranks))

    async def GetReport(self, request: pb.GetReportRequest, context: Any) -> pb.Report:
        return answers.report(self._controller, self._config)

    async def WatchReport(self, request: pb.WatchReportRequest, context: Any) -> None:  # type: ignore[override]
        await self._watch(context, self._shared_report.get)

    async def _watch(self, context: Any, message: Callable[[bool], object | None]) -> None:
        """Write a message at once, after each change, and a last time when the master ends.

        Args:
            context: the call's context.
            message: returns the message, which must be current if the argument is true. Nothing is
                written if it returns None or the same object again.
        """
        if self._watches >= MOST_WATCHES:
            problem = (
                f"{self._watches} watches are open, which is the limit; "
                "end one, or use the Get methods"
            )
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, problem)
        self._watches += 1
        try:
            last_sent = None
            while True:
                ending = self._ending.is_set()
                new = message(last_sent is None or ending)
                if new is not None and new is not last_sent:
                    await context.write(new)
                    last_sent = new
                if ending:
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), _WATCH_SECONDS)
        finally:
            self._watches -= 1
