"""Writes down what becomes of a job: who came and went, its worlds, and from time to time how fast it is."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from elasticjob_master.core.history import SAMPLE_SECONDS
from elasticjob_master.core.rendezvous.commands import Command, Exit
from elasticjob_master.core.rendezvous.members import Member

if TYPE_CHECKING:
    from elasticjob_master.controller import Controller


class HistoryRecorder:
    """Looks at a controller's state, and tells its history."""

    def __init__(self, job: Controller) -> None:
        self._job = job
        self._sample_due = 0.0

    def advanced(self, round_before: int, commands: Iterable[Command]) -> None:
        """The controller has decided."""
        job, rendezvous = self._job, self._job.rendezvous
        if rendezvous.round > round_before:
            job.record_event("WorldFormed", f"round {rendezvous.round} with {len(rendezvous.world)} members")
        for command in commands:
            if isinstance(command, Exit) and command.problem:
                self._unfit(command)
        gone, job.members.removed = job.members.removed, []
        for member in gone:
            self._gone(member)

    def tick(self, now: float) -> None:
        """Note how fast the job is, if it is time; before the first world there is nothing to tell."""
        rendezvous, progress = self._job.rendezvous, self._job.progress
        if now < self._sample_due or not rendezvous.round:
            return
        self._sample_due = now + SAMPLE_SECONDS
        self._job.history.add_sample(
            wall=round(time.time(), 1),
            world_round=rendezvous.round,
            world_size=len(rendezvous.world),
            step=progress.step,
            rate=float(f"{progress.samples_per_second(now):.4g}"),
        )

    def _unfit(self, command: Exit) -> None:
        member = self._job.members.get(command.uid)
        who = command.uid if member is None else member.identity.pod_name
        if not self._job.history.has_event("NodeUnfit", f"{who}: {command.problem}"):  # a new stream repeats it
            self._job.record_event("NodeUnfit", f"{who}: {command.problem}")

    def _gone(self, member: Member) -> None:
        pod = member.identity.pod_name
        if not member.leaving:
            silent = max(0.0, self._job.now() - member.last_heard_at)
            self._job.record_event("MemberLost", f"{pod}: last heard of {silent:.1f} s ago")
        elif member.node_check.stage == "failed":
            self._job.record_event("MemberLeft", f"{pod}: its node is not fit")
        else:
            how = "succeeded" if member.succeeded else "ended with its process" if member.exiting else "drained"
            self._job.record_event("MemberLeft", f"{pod}: {how}")
