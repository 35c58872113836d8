"""Runs the examples with parameter servers, whose servers report the number of workers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from elasticjob_api.elasticjob import Progress
from elasticjob_api.meta import Json
from elasticjob_cli.dev.observer import JobObserver

from tests.support.e2e.sandbox import EXAMPLES

SECONDS = 240.0


def example_job(
    python: str, folder: Path, *, manifest: str, script: str, variables: Mapping[str, str]
) -> Json:
    """Return an example, with its checkpoints in a folder of the test."""
    made: Json = yaml.safe_load((EXAMPLES / "frameworks" / manifest).read_text())
    environment = {**variables, "CHECKPOINT_DIR": str(folder)}
    for spec in made["spec"]["replicaSpecs"].values():
        pod = spec["template"]["spec"]
        pod["volumes"] = [{"name": "checkpoints", "hostPath": {"path": str(folder)}}]
        (container,) = pod["containers"]
        container["command"] = [python, str(EXAMPLES / "frameworks" / script)]
        container["env"] = [{"name": name, "value": value} for name, value in environment.items()]
        container["volumeMounts"] = [{"name": "checkpoints", "mountPath": str(folder)}]
    return made


async def trains(observer: JobObserver, workers: int, *, beyond: int = 0) -> int:
    """Wait until a world trains beyond a step, with this number of workers by the servers' count.

    Return the last step.
    """

    def new_step() -> int | None:
        progress = observer.status.progress
        if progress.metrics.get("workers") == workers and progress.step > beyond:
            return progress.step
        return None

    what = f"{workers} workers beyond step {beyond}"
    return await observer.until(what, new_step, seconds=SECONDS)


async def succeeds_with(observer: JobObserver, metric: str) -> Progress:
    """Wait for the job's success and the last report, which has this metric; return the report."""

    def last_report() -> Progress | None:
        if observer.job is None or observer.job.status.phase != "Succeeded":
            return None
        progress = observer.job.status.progress
        if progress is None or metric not in progress.metrics:
            return None
        return progress

    what = "the job's success, and its last report"
    return await observer.until(what, last_report, seconds=SECONDS)
