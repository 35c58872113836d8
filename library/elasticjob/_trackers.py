"""Writes the metrics of a job's steps to MLflow, TensorBoard or Weights & Biases.

All worlds of a job write to one run. A world that begins at a checkpoint repeats the steps after
it: TensorBoard then shows the new values only; MLflow and W&B cannot remove values and keep the
first ones. Only the process of `_tracker_process` imports the trackers.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from elasticjob_api import names

WORLD_SIZE = "elasticjob/world_size"
"""A metric of each report: the number of the world's processes."""
_JOB_TAG = "elasticjob.job_uid"
_MLFLOW_MOST = 1000
"""The most metrics of one request to MLflow."""
_MLFLOW_FILES = "MLFLOW_ALLOW_FILE_STORE"
"""Without this variable MLflow refuses files, in a long message that ends with its name."""
_MLFLOW_REFUSED = re.compile(r"[^\w\-. /]")


class TrackerUnusable(Exception):
    """The tracker cannot be used, and trying again does not help; the message says what does."""


class Failure(StrEnum):
    """What has failed: the use of this tracker at all, or to open the run, or to write to it."""

    UNUSABLE = "unusable"
    OPEN = "open"
    WRITE = "write"


class Report(NamedTuple):
    """The metrics of a finished step; `time` is in milliseconds since 1970."""

    round: int
    size: int
    step: int
    time: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Job:
    """What the run is called, and by what it is found again."""

    name: str
    uid: str


class Run(Protocol):
    """The job's run in a tracker, as one world writes it."""

    def write(self, reports: Sequence[Report]) -> None:
        """Write reports, and return when the tracker has them."""

    def close(self) -> None:
        """End the run; another world may continue it."""


class Unwritten:
    """Finds the values of which the run has no step as new, so that each is written once."""

    def __init__(self, newest: Mapping[str, int] | None = None, *, floor: int = -1) -> None:
        """Begin with the newest step of each metric in the run, and the newest one of all."""
        self._newest = dict(newest or {})
        self._floor = floor

    def values(self, report: Report) -> dict[str, float]:
        """Return the values of a report that are to be written; they are written from now on."""
        new = {
            name: value
            for name, value in {**report.metrics, WORLD_SIZE: float(report.size)}.items()
            if report.step > max(self._floor, self._newest.get(name, -1))
        }
        self._newest.update(dict.fromkeys(new, report.step))
        return new


class _TensorBoard:
    """A folder with a file of events for each world."""

    def __init__(self, job: Job, first: Report) -> None:
        folder = os.environ.get(names.ENV_TRACKER_FOLDER)
        if not folder:
            raise TrackerUnusable(f"set {names.ENV_TRACKER_FOLDER} to a folder for TensorBoard")
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.tensorflow_stub.io import gfile
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event: Any = Event
        self._summary: Any = Summary
        folder = f"{folder.rstrip('/')}/{job.name}-{job.uid}"
        gfile.makedirs(folder)
        # TensorBoard reads the files by name. The round comes first: nodes' clocks may differ.
        host = f"{time.time_ns()}.{socket.gethostname()}"
        file = gfile.GFile(f"{folder}/events.out.tfevents.{first.round:010d}.{host}", "wb")
        self._records: Any = RecordWriter(file)
        self._unwritten = Unwritten()
        self._add(file_version="brain.Event:2")
        # TensorBoard then forgets this step and later ones of earlier files.
        self._add(step=first.step, session_log=SessionLog(status=SessionLog.START))

    def write(self, reports: Sequence[Report]) -> None:
        for report in reports:
            values = [
                self._summary.Value(tag=name, simple_value=value)
                for name, value in self._unwritten.values(report).items()
            ]
            if values:
                summary = self._summary(value=values)
                self._add(wall_time=report.time / 1000, step=report.step, summary=summary)
        self._records.flush()

    def close(self) -> None:
        self._records.close()

    def _add(self, **fields: Any) -> None:
        event = self._event(**{"wall_time": time.time(), **fields})
        self._records.write(event.SerializeToString())


class _MLflow:
    """The run with the job's UID in a tag."""

    def __init__(self, job: Job, first: Report) -> None:
        # By default MLflow tries for minutes. These tries are repeated anyway.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        self._metric: Any = Metric
        try:
            self._client: Any = MlflowClient()
            experiment = self._experiment()
        except Exception as error:
            if _MLFLOW_FILES not in str(error):
                raise
            raise TrackerUnusable(
                f"MLflow refuses a store of files: set {_MLFLOW_FILES}=true, or "
                "MLFLOW_TRACKING_URI to a server or database (mlflow migrate-filestore moves the "
                "runs into one)"
            ) from error
        run = self._find(experiment, job)
        if run is None:
            self._client.create_run(experiment, tags={_JOB_TAG: job.uid}, run_name=job.name)
            # A request whose answer was lost may have created another one: the first one counts.
            run = self._find(experiment, job)
        self._run_id = run.info.run_id
        if run.info.status != "RUNNING":
            self._client.update_run(self._run_id, status="RUNNING")
        newest = {each.key: each.step for each in run.data.to_proto().metrics}
        self._unwritten = Unwritten(newest)

    def write(self, reports: Sequence[Report]) -> None:
        values = [
            self._metric(name, value, report.time, report.step)
            for report in reports
            for name, value in self._unwritten.values(_with_mlflow_names(report)).items()
        ]
        for begin in range(0, len(values), _MLFLOW_MOST):
            self._client.log_batch(self._run_id, values[begin : begin + _MLFLOW_MOST])

    def close(self) -> None:
        self._client.set_terminated(self._run_id)

    def _experiment(self) -> Any:
        if number := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return number
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"
        found = self._client.get_experiment_by_name(name)
        return found.experiment_id if found else self._client.create_experiment(name)

    def _find(self, experiment: Any, job: Job) -> Any:
        tagged = f"tags.`{_JOB_TAG}` = '{job.uid}'"
        order = ["attributes.start_time ASC"]
        return next(iter(self._client.search_runs([experiment], tagged, order_by=order)), None)


def mlflow_name(name: str) -> str:
    """Return a metric's name with the characters that MLflow refuses replaced."""
    parts = [part for part in _MLFLOW_REFUSED.sub("_", name).split("/") if part.strip(".")]
    return "/".join(parts) or "_"


def _with_mlflow_names(report: Report) -> Report:
    metrics = {mlflow_name(name): value for name, value in report.metrics.items()}
    return report._replace(metrics=metrics)


class _WandB:
    """The run whose id is the job's UID."""

    def __init__(self, job: Job, first: Report) -> None:
        import wandb

        self._run: Any = wandb.init(
            id=job.uid,
            name=os.environ.get("WANDB_NAME") or job.name,
            resume="allow",
            # Its lines would hide the last ones of the training, which the job's status shows.
            settings=wandb.Settings(console="off", silent=True, init_timeout=30),
        )
        self._unwritten = Unwritten(floor=self._run.step - 1)

    def write(self, reports: Sequence[Report]) -> None:
        for report in reports:
            if values := self._unwritten.values(report):
                self._run.log(values, step=report.step)

    def close(self) -> None:
        self._run.finish()


TRACKERS: Mapping[str, Callable[[Job, Report], Run]] = {
    "mlflow": _MLflow,
    "tensorboard": _TensorBoard,
    "wandb": _WandB,
}
"""Each opens the run of a job, before the first report of a world."""
