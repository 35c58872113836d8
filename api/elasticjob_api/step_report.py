"""A report of finished training steps, and its form on the wire from an agent to the master."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob_api.limits import MAX_METRIC_NAME_CHARACTERS, MAX_METRICS, MAX_STEP
from elasticjob_api.v1 import agent_pb2 as pb


@dataclass(frozen=True)
class StepReport:
    """Steps of one round that a process, or a member, has finished since its last report.

    Attributes:
        step: the number of the last step, counted from the beginning of the training.
        total_steps: the number of steps of the whole training; 0: not known.
        samples: samples trained since the last report.
        seconds: seconds since the last report; 0: not known.
        steps: steps finished since the last report; 0: not known.
        compute_seconds: the part of `seconds` without waiting for others; 0: not known.
        save_seconds: seconds that writing checkpoints to the storage took since the last report.
        saved_bytes: the size of a checkpoint there; 0: not known.
        local_rank: of the process within its member. The master gets one report of all processes.
    """

    round: int
    step: int
    total_steps: int = 0
    samples: float = 0.0
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    compute_seconds: float = 0.0
    local_rank: int = 0
    save_seconds: float = 0.0
    saved_bytes: int = 0

    def validation_error(self) -> str | None:
        """Return an error that names field, value and bound; None: the report is valid."""
        for name in ("step", "total_steps", "steps", "saved_bytes"):
            value = getattr(self, name)
            if not 0 <= value <= MAX_STEP:
                return f"{name} is {value}; it must be between 0 and {MAX_STEP}"
        for name in ("samples", "seconds", "compute_seconds", "save_seconds"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1e15:  # also NaN
                return f"{name} is {value}; it must be a number between 0 and 1e15"
        if len(self.metrics) > MAX_METRICS:
            return f"metrics has {len(self.metrics)} entries; it must have at most {MAX_METRICS}"
        for name in self.metrics:
            if not 0 < len(name) <= MAX_METRIC_NAME_CHARACTERS:
                return (
                    f"metrics has a name of {len(name)} characters; "
                    f"it must have 1 to {MAX_METRIC_NAME_CHARACTERS}"
                )
        return None

    def message(self) -> pb.StepReport:
        """Return the report as it is sent."""
        return pb.StepReport(
            round=self.round,
            step=self.step,
            total_steps=self.total_steps,
            samples=self.samples,
            seconds=self.seconds,
            metrics=self.metrics,
            steps=self.steps,
            compute_seconds=self.compute_seconds,
            save_seconds=self.save_seconds,
            saved_bytes=self.saved_bytes,
        )


def report_of(message: pb.StepReport) -> StepReport:
    """Return a report that was sent."""
    return StepReport(
        message.round,
        message.step,
        message.total_steps,
        message.samples,
        message.seconds,
        dict(message.metrics),
        message.steps,
        message.compute_seconds,
        save_seconds=message.save_seconds,
        saved_bytes=message.saved_bytes,
    )
