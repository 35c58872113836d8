"""Writes `status.progress` of the ElasticJob: findings at once, the rest from time to time.

The commands that end agents are sent after a write. So the last step of a job is in its status
before the operator sees that its pods have ended.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from elasticjob_api import names
from elasticjob_api.times import format_time
from elasticjob_kube.errors import KubeError, NotFound
from elasticjob_kube.resources import ELASTIC_JOBS
from elasticjob_kube.session import Kube

from elasticjob_master.config import Config
from elasticjob_master.controller import Controller
from elasticjob_master.core.history import PROCESS_RESTARTED
from elasticjob_master.core.progress import Progress, format_eta, format_rate, format_steps
from elasticjob_master.script_order import ScriptResult

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0
_CHECK_SECONDS = 0.5
_EXIT_SECONDS = 3.0
"""How long a write may delay the end of an agent, which waits 10 s for it."""
_OF_THE_MOMENT = ("lastReportTime", "samplesPerSecond", "rate", "etaSeconds", "eta")
"""The end of an agent does not wait for them, so the members of a job do not cost a write each."""
_MOST_PODS = 100
_LONGEST_PROBLEM = 1024
_LONGEST_REASON = 256
_LONGEST_WHY_STALLED = 512


class ProgressWriter:
    """Writes the controller's progress as the field manager of the master."""

    def __init__(self, kube: Kube, config: Config, controller: Controller) -> None:
        self._kube = kube
        self._config = config
        self._controller = controller
        self._last_written: dict[str, Any] = {}
        self._written_at = 0.0
        self._wake = asyncio.Event()
        controller.subscribe("exit_held", self._wake.set)

    async def run(self) -> None:
        """Write while the master runs."""
        last = None
        while True:
            self._wake.clear()
            exits = self._controller.held_exits()
            findings = self._findings()
            is_due = self._controller.now() - self._written_at >= PROGRESS_SECONDS
            if findings != last or is_due or (exits and not self._has_last_step()):
                last = findings
                with suppress(TimeoutError):
                    async with asyncio.timeout(_EXIT_SECONDS if exits else None):
                        await self.write()
            for each in exits:
                self._controller.streams.send(each)
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._wake.wait()

    def _findings(self) -> dict[str, Any]:
        """Return the findings about the training, as arguments of `progress_status`."""
        controller = self._controller
        return {
            "stalled_since": controller.health_monitor.stalled_since,
            "why_stalled": controller.health_monitor.why_stalled,
            "stragglers": controller.health_monitor.stragglers,
            "why_not_replaced": controller.scaling.replacer.why_not,
            "unfit": dict(controller.rendezvous.unfit.values()),
            "script": controller.scripts.result,
            "process_restarted": controller.history.latest(PROCESS_RESTARTED),
        }

    def _progress(self) -> dict[str, Any]:
        controller = self._controller
        return progress_status(controller.progress, controller.now(), **self._findings())

    def _has_last_step(self) -> bool:
        """Return whether the status has all but what changes with time alone."""
        return _lasting(self._last_written) == _lasting(self._progress())

    async def write(self) -> None:
        """Write the progress if it has changed."""
        controller = self._controller
        progress = self._progress()
        if progress == self._last_written:
            return
        self._written_at = controller.now()
        body = {
            "apiVersion": ELASTIC_JOBS.api_version,
            "kind": ELASTIC_JOBS.kind,
            # The UID prevents a write to a later job of the same name.
            "metadata": {"name": self._config.job_name, "uid": self._config.job_uid},
            # The progress may be empty again before the first step, when a finding has ended. The
            # API server accepts no empty object.
            "status": {"progress": progress or {"step": 0}},
        }
        try:
            await self._kube.apply(
                ELASTIC_JOBS,
                self._config.namespace,
                self._config.job_name,
                body,
                subresource="status",
                field_manager=names.MASTER,
            )
        except NotFound:
            log.info("the ElasticJob was deleted")
        except KubeError as error:
            log.warning("progress is not written, trying again: %s", error)
            return
        self._last_written = progress


def _lasting(progress: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in progress.items() if name not in _OF_THE_MOMENT}


def progress_status(
    progress: Progress,
    now: float,
    *,
    stalled_since: float | None = None,
    why_stalled: str = "",
    stragglers: Sequence[str] = (),
    why_not_replaced: str = "",
    unfit: Mapping[str, str] | None = None,
    script: ScriptResult | None = None,
    process_restarted: str = "",
) -> dict[str, Any]:
    """Return `status.progress`, within the bounds of its schema.

    Before the first reported step it contains findings only.
    """
    problems: dict[str, Any] = {}
    if stalled_since is not None:
        problems["stalledSince"] = format_time(stalled_since)
        if why_stalled:
            problems["whyStalled"] = why_stalled[:_LONGEST_WHY_STALLED]
    if stragglers:
        problems["stragglers"] = list(stragglers)[:_MOST_PODS]
        if why_not_replaced:
            problems["whyNotReplaced"] = why_not_replaced[:_LONGEST_REASON]
    if unfit:
        problems["unfit"] = {
            pod: unfit[pod][:_LONGEST_PROBLEM] for pod in sorted(unfit)[:_MOST_PODS]
        }
    if process_restarted:
        problems["processRestarted"] = process_restarted[:_LONGEST_REASON]
    if script is not None:
        problems["script"] = {
            "plan": script.plan,
            "exitCode": script.exit_code,
            "message": script.message,
        }
    if progress.reported_at is None:
        return problems
    rate = progress.samples_per_second(now)
    eta = progress.eta_seconds(now)
    reported: dict[str, Any] = {
        "step": progress.step,
        "lastReportTime": format_time(progress.reported_at),
        "metrics": {name: _rounded(value, 6) for name, value in progress.metrics.items()},
        "steps": format_steps(progress.step, progress.total_steps),
    }
    if rate > 0:  # it is 0 between two worlds and after the end
        reported |= {"samplesPerSecond": _rounded(rate), "rate": format_rate(rate)}
    if progress.total_steps:
        reported["totalSteps"] = progress.total_steps
    if eta is not None:
        seconds = math.ceil(min(eta, 1e9))
        reported |= {"etaSeconds": seconds, "eta": format_eta(seconds)}
    return reported | problems


def _rounded(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")
