"""The demo's steps. Each waits for its effect; if an effect is not observed, the demo ends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from elasticjob_api.elasticjob import Progress
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.v1 import job_pb2

from elasticjob_cli.dev.observer import JobObserver
from elasticjob_cli.dev.timeline import Kubectl, NotObserved, Timeline

T = TypeVar("T")

REMOVED_WORKERS = ("digits-worker-1", "digits-worker-3")
"""The workers that examples/digits-scale-in.yaml names."""
COOLDOWN = 2
"""Seconds for which the auto-scaler measures a size; short, for a demo."""
MIN_ACCURACY = 0.95
TRAINING_SECONDS = 300.0


@dataclass(frozen=True)
class DemoScenario:
    """One job to its end: start, scale out, scale in, standby, auto-scaling, success."""

    examples: Path
    kubectl: Kubectl
    observer: JobObserver
    timeline: Timeline

    async def run(self) -> None:
        """Run all steps in order.

        Raises:
            NotObserved: a step did not happen.
        """
        await self._start()
        await self._scale_out()
        await self._scale_in()
        await self._stand_by()
        await self._auto_scale()
        await self._finish()

    async def _start(self) -> None:
        self.timeline.heading("A job with two workers")
        began = time.monotonic()
        await self.kubectl("apply", "-f", self._file("digits.yaml"))
        await self._until("the master pod runs", lambda: self._running("digits-master"))
        self.timeline.done("master pod up", since=began, proof="pod digits-master is Running")
        await self._wait_for_world(2)
        status = self.observer.status
        proof = f"round {status.round}, world size 2, step {status.progress.step}"
        self.timeline.done("two workers registered and training", since=began, proof=proof)
        self._record_seconds("apply → first training step (goal ≤ 10 s)", began)
        await self._until("progress and rate in the job's status", self._has_rate)
        await self.kubectl("get", "ej")

    async def _scale_out(self) -> None:
        self.timeline.heading("ScaleOut: two more workers")
        began = time.monotonic()
        before = set(self.observer.hosts)
        registrations = asyncio.create_task(self.observer.record_registrations())
        try:
            await self.kubectl("apply", "-f", self._file("digits-scale-out.yaml"))
            await self._until("four hosts in discovery", lambda: len(self.observer.hosts) == 4)
        finally:
            registrations.cancel()
            await asyncio.gather(registrations, return_exceptions=True)
        self.timeline.done(
            "host discovery shows four", since=began, proof=" ".join(self.observer.hosts)
        )
        await self._until("a world of four", lambda: self.observer.status.world_size == 4)
        self._record_seconds("ScaleOut applied → new workers in the world (goal ≤ 5 s)", began)
        await self._wait_for_world(4)
        self._record_seconds("ScaleOut applied → the world of four has trained a step", began)
        self.timeline.done(
            "the new workers train",
            since=began,
            proof=f"round {self.observer.status.round}, world size 4",
        )
        new = [host.partition(":")[0] for host in self.observer.hosts if host not in before]
        registered = self.observer.registered_at
        listed = self.observer.listed_at
        delays = [listed[name] - registered[name] for name in new if name in registered]
        figure = "worker registered → visible in discovery (goal ≤ 100 ms)"
        self.timeline.figures[figure] = f"{max([*delays, 0.0]) * 1000:.0f} ms"
        await self.kubectl(
            "wait", "--for=jsonpath={.status.phase}=ScaleSucceeded", "scaleout/digits-more"
        )

    async def _scale_in(self) -> None:
        self.timeline.heading(f"ScaleIn: {' and '.join(REMOVED_WORKERS)} leave")
        began = time.monotonic()
        await self.kubectl("apply", "-f", self._file("digits-scale-in.yaml"))
        codes = await self._until("the agents' confirmation", self._exit_codes)
        await self._until(
            "the pods are deleted", lambda: not set(REMOVED_WORKERS) & set(self.observer.pods)
        )
        await self.kubectl(
            "wait", "--for=jsonpath={.status.phase}=ScaleSucceeded", "scalein/digits-fewer"
        )
        plan = next(plan for plan in self.observer.plans.values() if plan.spec.source == "ScaleIn")
        if plan.status.forced_pods:
            raise NotObserved(
                f"a confirmed drain: the pods {plan.status.forced_pods} had to be forced"
            )
        await self._wait_for_world(2)
        proof = f"their agents confirmed (exit codes {codes}) before the pods were deleted"
        self.timeline.done("the named workers were drained", since=began, proof=proof)

    async def _stand_by(self) -> None:
        self.timeline.heading("Processes in standby: the next change has no import")
        began = time.monotonic()
        proof = await self._until("a process in standby of each worker", self._in_standby)
        self.timeline.done("all workers have a process in standby", since=began, proof=proof)

    async def _auto_scale(self) -> None:
        self.timeline.heading("Auto-scaling: the master decides by what it has measured")
        began = time.monotonic()
        # The cooldown was too long for measurements until now. Two workers are so few that more of
        # them pay even in the minute that is left.
        scaling = {
            "enabled": True,
            "cooldownSeconds": COOLDOWN,
            "objective": {"type": "Throughput"},
        }
        patch = json.dumps({"spec": {"autoscaling": scaling}}, separators=(",", ":"))
        await self.kubectl("patch", "ej", "digits", "--type=merge", "-p", patch)
        plan = await self._until("a ScalePlan from the master", self._auto_plan)
        name = plan.metadata.name
        await self._until(
            "the plan's success", lambda: self.observer.plans[name].status.phase == "Succeeded"
        )
        self.timeline.done(
            "the master scaled the job by itself", since=began, proof=plan.spec.reason
        )
        await self.kubectl("get", "ej,sp,scalein,scaleout")

    async def _finish(self) -> None:
        self.timeline.heading("Training continues to its end")
        began = time.monotonic()
        observer = self.observer
        await self._until(
            "the job's success", lambda: observer.job and observer.job.status.phase == "Succeeded"
        )
        # The accuracy is in the training's last report, which the master writes after the phase.
        progress = await self._until("the final accuracy in the job's status", self._final_progress)
        accuracy = progress.metrics["accuracy"]
        if progress.step != progress.total_steps:
            raise NotObserved(
                f"all steps: the job succeeded after step {progress.step} of {progress.total_steps}"
            )
        if accuracy < MIN_ACCURACY:
            raise NotObserved(f"accuracy {accuracy:.4f} is below {MIN_ACCURACY}")
        proof = f"step {progress.step} of {progress.total_steps}, test accuracy {accuracy:.4f}"
        self.timeline.done("the job succeeded", since=began, proof=proof)
        await self._until("every shard done in the master's ledger", self._all_shards_done)
        ended = time.monotonic()
        await self._until("no pod left over", lambda: not observer.pods)
        self.timeline.done("nothing is left over", since=ended, proof="0 pods of the job")
        await self.kubectl("get", "ej,sp,scalein,scaleout")

    def _in_standby(self) -> str:
        self._check_running("processes in standby")
        said = self.observer.report.standby
        return said if said.startswith("2 of 2 ") else ""

    def _auto_plan(self) -> ScalePlan | None:
        plan = next(
            (plan for plan in self.observer.plans.values() if plan.spec.source == "Auto"), None
        )
        if plan is None:
            self._check_running("a ScalePlan from the master")
        return plan

    def _check_running(self, what: str) -> None:
        job = self.observer.job
        if job is not None and job.status.phase == "Succeeded":
            raise NotObserved(f"{what}: the training ended before; give it more EPOCHS")

    def _final_progress(self) -> Progress | None:
        job = self.observer.job
        if job is None or job.status.progress is None:
            return None
        progress = job.status.progress
        return progress if "accuracy" in progress.metrics else None

    def _all_shards_done(self) -> bool:
        ledgers = self.observer.status.datasets
        self.timeline.figures["shards accounted for"] = ", ".join(
            f"{ledger.dataset}: {ledger.done} of {ledger.total} done, "
            f"{ledger.leased} leased, {ledger.waiting} waiting"
            for ledger in ledgers
        )
        returned = sum(ledger.returned for ledger in ledgers)
        self.timeline.figures["leases given back at world changes, and leased again"] = str(
            returned
        )
        return bool(ledgers) and all(ledger.done == ledger.total for ledger in ledgers)

    async def _wait_for_world(self, size: int) -> None:
        """Wait until a world of this size is formed and has trained a step."""
        training = job_pb2.JOB_PHASE_TRAINING

        def formed() -> bool:
            status = self.observer.status
            return (
                status.world_size == size and status.phase == training and status.progress.step > 0
            )

        await self._until(f"a training world of {size}", formed)
        step = self.observer.status.progress.step
        await self._until("a further step", lambda: self.observer.status.progress.step > step)

    async def _until(self, what: str, condition: Callable[[], T | None]) -> T:
        return await self.observer.until(what, condition, seconds=TRAINING_SECONDS)

    def _running(self, pod: str) -> bool:
        return pod in self.observer.pods and self.observer.pods[pod].status.phase == "Running"

    def _exit_codes(self) -> str:
        """Return the exit codes of the removed workers' agents; empty until all have ended."""
        ended = self.observer.ended
        if not set(REMOVED_WORKERS) <= set(ended):
            return ""
        return ", ".join(str(ended[pod]) for pod in REMOVED_WORKERS)

    def _has_rate(self) -> bool:
        job = self.observer.job
        return bool(job and job.status.progress and job.status.progress.samples_per_second)

    def _record_seconds(self, name: str, began: float) -> None:
        self.timeline.figures[name] = f"{time.monotonic() - began:.1f} s"

    def _file(self, name: str) -> str:
        return str(self.examples / name)
