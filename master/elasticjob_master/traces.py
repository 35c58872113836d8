"""Sends the spans of a job's trace that the master knows: agents, worlds and their first steps.

Each is sent once, by the master that has formed the world. A master that starts later begins with
the next world.
"""

from __future__ import annotations

import time
from dataclasses import replace

from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.times import time_or_none
from elasticjob_api.traces import Context, Span, Value
from elasticjob_kube.trace_export import TraceExport

from elasticjob_master.config import Config
from elasticjob_master.controller import Controller


class Traces:
    """The spans of the worlds that a controller forms, as parts of the span of the job."""

    def __init__(
        self, controller: Controller, config: Config, job: Context, export: TraceExport
    ) -> None:
        self._controller = controller
        self._state = controller.rendezvous
        self._job = job
        self._export = export
        self._of_job: dict[str, Value] = {
            "k8s.namespace.name": config.namespace,
            "elasticjob.job": config.job_name,
            "elasticjob.job.uid": config.job_uid,
        }
        self._round = self._state.round
        self._formed_at = 0.0
        self._members = self._state.world_uids
        self._ending_since: float | None = None
        self._starting: Span | None = None
        self._running: Span | None = None
        controller.subscribe("decided", self._decided)
        controller.subscribe("stepped", self._stepped)

    def _decided(self) -> None:
        """Notice that a world ends, that the next one is formed, or that its processes run."""
        state = self._state
        if state.round != self._round:
            self._world_formed()
        elif state.phase in ("reforming", "waiting") and self._ending_since is None and state.round:
            self._ending_since = time.time()
        if state.confirmed_at is not None:
            self._processes_run(self._wall(state.confirmed_at))

    def _stepped(self) -> None:
        """Send the span of the first step of a world."""
        now = time.time()
        self._processes_run(now)
        if (world := self._running) is not None:
            self._running = None
            step: dict[str, Value] = {"elasticjob.step": self._controller.progress.step}
            context = world.context.child("first step", "")
            parent = world.context.span_id
            self._send(Span("first step", context, parent, world.end, now, step))

    def _world_formed(self) -> None:
        state = self._state
        formed_at = self._wall(state.formed_at or self._controller.now())
        plan = self._plan_under_way()
        joined = state.world_uids - self._members
        left = self._members - state.world_uids
        for uid in joined:
            self._agent_took_part(uid, formed_at)
        if plan is not None:
            reason = f"plan {plan.metadata.name}: {plan.spec.reason}"
        elif not self._members:
            reason = "the first world"
        elif joined or left:
            reason = f"{len(joined)} joined, {len(left)} left"
        else:
            reason = "the processes start again"
        sizes: dict[str, Value] = {
            "elasticjob.round": state.round,
            "elasticjob.reason": reason,
            "elasticjob.members.before": len(self._members),
            "elasticjob.members.after": len(state.world_uids),
            "elasticjob.members.joined": len(joined),
            "elasticjob.members.left": len(left),
        }
        if self._starting is not None:
            self._send(replace(self._starting, end=formed_at, failed=True))
        parent = self._job.child("plan", plan.metadata.uid) if plan else self._job
        start = formed_at if self._ending_since is None else self._ending_since
        context = self._job.child("world", str(state.round))
        self._starting = Span("world", context, parent.span_id, start, formed_at, sizes)
        self._running = None
        self._ending_since = None
        self._round = state.round
        self._formed_at = formed_at
        self._members = state.world_uids

    def _processes_run(self, since: float) -> None:
        """Send the span of a world, from the end of the one before until its processes run."""
        if self._starting is not None:
            self._running = replace(self._starting, end=since)
            self._starting = None
            self._send(self._running)

    def _agent_took_part(self, uid: str, formed_at: float) -> None:
        """Send the span of an agent, from its connection until its first world is formed."""
        member = self._state.members.get(uid)
        if member is None or member.joined_at is None:
            return
        pod = self._job.child("pod", uid)
        identity = member.identity
        attributes: dict[str, Value] = {
            "k8s.pod.name": identity.pod_name,
            "k8s.pod.uid": uid,
            "elasticjob.role": identity.role,
            "elasticjob.index": identity.index,
        }
        context = pod.child("agent", str(self._state.round))
        joined_at = self._wall(member.joined_at)
        self._send(Span("agent", context, pod.span_id, joined_at, formed_at, attributes))

    def _plan_under_way(self) -> ScalePlan | None:
        """Return the latest plan that is being executed, or was since the last world was formed."""
        for plan in reversed(self._controller.scaling.latest_plans):
            began = time_or_none(plan.status.start_time)
            ended = time_or_none(plan.status.completion_time) or 0.0
            if began is not None and (
                plan.status.phase not in FINISHED or ended >= int(self._formed_at)
            ):
                return plan
        return None

    def _wall(self, moment: float) -> float:
        """Return a moment of the controller's clock in seconds since the epoch."""
        return time.time() - (self._controller.now() - moment)

    def _send(self, span: Span) -> None:
        self._export.send(replace(span, attributes={**self._of_job, **span.attributes}))
