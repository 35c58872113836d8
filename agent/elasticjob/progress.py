"""Telling how far the training is, and hearing when it has to make room for a new world."""

from __future__ import annotations

import math
from collections.abc import Mapping

from elasticjob._socket import connection

_WRITE_SECONDS = 5.0


def report_step(
    step: int, *, total: int | None = None, samples: float = 0, metrics: Mapping[str, float] | None = None
) -> None:
    """Report that a step is finished. Never waits and never fails because of the agent or the master.

    Args:
        step: the finished step, counted from the start of the job, not of this process: 0 or more.
        total: all steps of the job, if known.
        samples: samples this process has trained since its last report.
        metrics: numbers to show, such as the loss; those that are not finite are left out.
    """
    if step < 0 or (total is not None and total < 0):
        raise ValueError(f"step={step} and total={total} must not be negative")
    agent = connection()
    if agent is not None:
        numbers = {name: float(value) for name, value in (metrics or {}).items()}
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        agent.report(int(step), None if total is None else int(total), float(samples), finite)


def should_stop() -> bool:
    """Tell whether this process was asked to save its state, to call `confirm_stop` and to exit with code 0.

    The processes of a world hear it at different times: let all of them agree on the step after which they stop.
    The first call tells the agent that this process can be asked. One that never calls gets SIGTERM at once; one that
    has called gets it when the time it was given is nearly over. What does not end then is killed.
    """
    agent = connection()
    return agent is not None and agent.listen()


def confirm_stop() -> None:
    """Say, before exiting with code 0, that this is a stop and not the end of the training.

    Needed because a process may stop with the others before its own agent has heard of it: without this word, an exit
    with code 0 that nobody has asked for means that the training is finished.
    """
    agent = connection()
    if agent is not None:
        agent.tell({"stopping": True})
        agent.flush(_WRITE_SECONDS)
