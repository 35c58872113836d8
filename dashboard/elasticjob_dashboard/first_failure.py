"""Finds which process has failed first and so ended its job: others often fail because of it. Pure.

The master has seen in which order processes failed, and with which ranks; a process that was killed
with its agent is known by its pod's failure only.
"""

from __future__ import annotations

from elasticjob_api.meta import Json
from elasticjob_api.v1 import job_pb2 as pb

_ENDED_THE_JOB_SECONDS = 60.0
"""A failure so long before the job's end, or longer, is not its reason."""


def first_failure(answers: pb.StoredAnswers) -> Json | None:
    """Return pod, how it failed and its last words; None if the job has not failed by a pod."""
    outcome = answers.report.outcome
    since = outcome.completed - _ENDED_THE_JOB_SECONDS
    failures = [each for each in outcome.failures if each.time >= since]
    if outcome.phase != "Failed" or not failures:
        return None
    pod = failures[-1].pod
    how = failures[-1].reason
    if said := _first_in_the_last_world(answers.history, since):
        pod, _, how = said.partition(" ")
    words = next((each.message for each in failures if each.pod == pod), "")
    return {"pod": pod, "how": how, "message": words}


def _first_in_the_last_world(history: pb.History, since: float) -> str:
    """Return the message of the first failed process in the last world with one."""
    first = ""
    formed = True
    for event in history.events:
        if event.reason == "WorldFormed":
            formed = True
        elif event.reason == "ProcessFailed" and event.time >= since:
            if formed:
                first = event.message
            formed = False
    return first
