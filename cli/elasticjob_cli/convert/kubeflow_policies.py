"""The run policy and the restart policies that Kubeflow's jobs share. Pure."""

from __future__ import annotations

from elasticjob_api.elasticjob import MAX_INT32
from elasticjob_api.limits import MAX_RESTARTS
from elasticjob_api.meta import Json

from elasticjob_cli.convert import common_fields, jobs, launcher
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, place

_PERMANENT = ([*range(1, 65)], [*range(65, 128)])
"""Exit codes that fail a replica for good with restartPolicy ExitCode; a rule has up to 64."""


def run_policy(policy: Fields, clean_default: str | None = "None") -> Json:
    """Return the fields of the run policy."""
    found = common_fields.run_policy(policy, clean_default=clean_default)
    if (limit := policy.integer("backoffLimit", 0, MAX_INT32)) is not None:
        found["backoffLimit"] = limit
    if policy.boolean("suspend", default=False):
        found["suspend"] = True
    if wanted := _scheduling_policy(policy.map("schedulingPolicy")):
        found["schedulingPolicy"] = wanted
    return found


def _scheduling_policy(scheduling: Fields) -> Json:
    wanted: Json = {}
    queue = scheduling.text("queue")
    if queue or scheduling.has("minAvailable"):
        wanted["gang"] = "volcano"
        message = "gang: volcano; the job does not name its scheduler"
        scheduling.invented("", message, ("spec", "runPolicy", "schedulingPolicy"))
    if queue:
        wanted["queue"] = queue
    if name := scheduling.text("priorityClass"):
        wanted["priorityClassName"] = name
    scheduling.done()
    return wanted


def restart_policy(group: Fields, role: str, written: Json, draft: Draft, default: str) -> None:
    """Convert the restart policy of a group of pods to the limit and the rules of a role."""
    policy = group.text("restartPolicy", default, choices=launcher.POLICIES)
    at = place(role, "restartLimit")
    limit = draft.spec["runPolicy"].get("backoffLimit")
    if policy == "Never":
        written["restartLimit"] = 0
        message = launcher.NEVER.format(what="job")
    elif limit is not None:
        written["restartLimit"] = min(limit, MAX_RESTARTS)
        message = f"{policy}: the limit is backoffLimit; {jobs.MORE_MEMORY}"
    else:
        restarts = "a member is restarted at most restartLimit (3) times"
        message = f"{policy}: {restarts}; {jobs.MORE_MEMORY}"
        at = place(role)
    if policy == "ExitCode":
        written["restartRules"] = [
            {"action": "FailJob", "exitCodes": codes} for codes in _PERMANENT
        ]
    group.differs("restartPolicy", message, at)
