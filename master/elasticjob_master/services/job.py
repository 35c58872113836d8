"""JobService: questions about the running job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from elasticjob_api.v1 import agent_pb2
from elasticjob_api.v1 import job_pb2 as pb
from elasticjob_api.v1.job_pb2_grpc import JobServiceServicer

from elasticjob_master import translate
from elasticjob_master.config import Config
from elasticjob_master.controller import Controller

_WATCH_SECONDS = 1.0
_PHASES = {
    "waiting": pb.JOB_PHASE_WAITING,
    "training": pb.JOB_PHASE_TRAINING,
    "reforming": pb.JOB_PHASE_REFORMING,
    "finishing": pb.JOB_PHASE_FINISHING,
}


class JobService(JobServiceServicer):
    """Status, members and world."""

    def __init__(self, controller: Controller, config: Config) -> None:
        self._controller = controller
        self._config = config
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Tell those who watch the last status, and end their watches: the master itself is about to end."""
        self._ending.set()

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.JobStatus:  # noqa: D102
        return self._status()

    async def WatchStatus(self, request: pb.WatchStatusRequest, context: Any) -> AsyncIterator[pb.JobStatus]:  # noqa: D102
        told = None
        while True:
            last = self._ending.is_set()
            status = self._status()
            if status != told:
                yield status
                told = status
            if last:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _WATCH_SECONDS)

    async def GetMembers(self, request: pb.GetMembersRequest, context: Any) -> pb.MemberList:  # noqa: D102
        return pb.MemberList(members=map(translate.member, self._controller.members))

    async def GetWorld(self, request: pb.GetWorldRequest, context: Any) -> agent_pb2.World:  # noqa: D102
        rendezvous = self._controller.rendezvous
        present = [m for m in map(self._controller.members.get, rendezvous.world) if m is not None]
        return agent_pb2.World(round=rendezvous.round, members=map(translate.member, present))

    def _status(self) -> pb.JobStatus:
        controller = self._controller
        rendezvous, progress = controller.rendezvous, controller.progress
        now = controller.now()
        eta = progress.eta_seconds(now)
        over = rendezvous.finished_at is not None and rendezvous.phase == "waiting"
        return pb.JobStatus(
            namespace=self._config.namespace,
            job_name=self._config.job_name,
            phase=pb.JOB_PHASE_FINISHING if over else _PHASES[rendezvous.phase],
            round=rendezvous.round,
            world_size=len(rendezvous.world),
            progress=pb.Progress(
                step=progress.step,
                total_steps=progress.total_steps,
                samples_per_second=progress.samples_per_second(now),
                eta_seconds=-1.0 if eta is None else eta,
                last_report_time=progress.reported_at or 0.0,
                metrics=progress.metrics,
            ),
            datasets=map(translate.ledger, controller.ledgers),
            master_starts=controller.starts,
        )
