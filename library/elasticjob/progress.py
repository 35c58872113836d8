"""Reports steps, and receives the requests to stop for a new world."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

from elasticjob_api.limits import MAX_METRIC_NAME_CHARACTERS, MAX_METRICS

from elasticjob._agent_connection import agent_connection
from elasticjob._arguments import check_number, check_text
from elasticjob._tracking import track

_CONFIRM_SECONDS = 5.0


def report_step(
    step: int,
    *,
    total: int | None = None,
    samples: float = 0,
    metrics: Mapping[str, float] | None = None,
    compute_seconds: float | None = None,
) -> None:
    """Report that a step is finished.

        loss = train(step)
        elasticjob.report_step(step + 1, total=total, samples=32, metrics={"loss": loss})

    Never waits and never fails because of the agent, the master or a tracker.

    Args:
        step: the finished step, counted from the start of the job, not of this process: 0 or more.
        total: all steps of the job, if known.
        samples: the samples that this process has trained since its last report.
        metrics: numbers to show, such as the loss; those of rank 0 also go to the tracker that
            ELASTICJOB_TRACKER names. Numbers that are not finite, names of more than 64 characters,
            and all beyond 64 names are dropped.
        compute_seconds: the seconds that this process has computed since its last report, without
            waiting for the others, if known. If all wait for each other at every step, only this
            shows which one is slow.

    Raises:
        ValueError: what must be a number is none, or is negative or not finite.
    """
    check_number("step", step)
    check_number("total", 0 if total is None else total)
    check_number("samples", samples)
    check_number("compute_seconds", 0 if compute_seconds is None else compute_seconds)
    numbers = {} if metrics is None else _valid_metrics(metrics)
    agent = agent_connection()
    if agent is not None:
        agent.report(
            int(step),
            None if total is None else int(total),
            float(samples),
            numbers,
            float(compute_seconds or 0),
        )
        if numbers:
            track(agent, int(step), numbers)


def should_stop() -> bool:
    """Return whether this process was asked to save, to call `confirm_stop` and to exit with 0.

        stop = any_rank(elasticjob.should_stop())  # such as an all-reduce
        if stop:
            save(step)
            elasticjob.confirm_stop()
            raise SystemExit(0)

    The processes of a world are asked at different times: let all of them agree on the step after
    which they stop. The first call informs the agent that this process can be asked. A process that
    never calls it gets SIGTERM at once; another one gets SIGTERM shortly before its time ends. A
    process that does not exit then is killed.
    """
    agent = agent_connection()
    return agent is not None and agent.should_stop()


def checkpoint_requested() -> bool:
    """Return whether a stop was requested and not confirmed yet.

        if elasticjob.checkpoint_requested():
            save(step)

    This is for code that saves but does not end the training, such as a background thread. As
    `should_stop`, it informs the agent that this process can be asked to stop.
    """
    agent = agent_connection()
    return agent is not None and agent.should_stop() and not agent.stop_confirmed


def confirm_stop() -> None:
    """Confirm, before an exit with code 0, that this is a stop and not the end of the training.

        if elasticjob.should_stop_together():
            save(step)
            elasticjob.confirm_stop()
            raise SystemExit(0)

    A process may stop with the others before its own agent was asked to stop it. Without a request
    and a confirmation, an exit with code 0 means that the training is finished. The call waits at
    most 5 seconds until the confirmation is written to the agent.
    """
    agent = agent_connection()
    if agent is not None:
        agent.stop_confirmed = True
        agent.send({"stopping": True})
        agent.flush(_CONFIRM_SECONDS)


def _valid_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(metrics, Mapping):
        raise ValueError(f"{metrics=!r:.80} must be numbers by name, such as {{'loss': 0.5}}")
    if len(metrics) > MAX_METRICS:
        warnings.warn(f"{len(metrics)} metrics: only {MAX_METRICS} can be shown", stacklevel=3)
    valid: dict[str, float] = {}
    for name, value in metrics.items():
        check_text("a name in metrics", name)
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"metrics: {name!r:.80} is {value!r:.80}, not a number") from error
        if (
            math.isfinite(number)
            and 0 < len(name) <= MAX_METRIC_NAME_CHARACTERS
            and len(valid) < MAX_METRICS
        ):
            valid[name] = number
    return valid
