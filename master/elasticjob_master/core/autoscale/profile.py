"""The needs of earlier jobs of a profile: text in a ConfigMap, one line for each job.

Anyone who may write ConfigMaps in the namespace can have written it, so it is read within strict
bounds and used only for the beginning of a job. Written resources, size bounds and resourceLimits
override it, and later measurements correct it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from elasticjob_api.elasticjob import MAX_REPLICAS
from elasticjob_api.limits import MAX_ROLES
from msgspec import Meta

from elasticjob_master.core.autoscale import needs
from elasticjob_master.core.autoscale.decision import ScalingDecision, ScalingInputs, allowed
from elasticjob_master.core.autoscale.job_scaling import JobScaling
from elasticjob_master.core.autoscale.measurements import begin_search, with_settled
from elasticjob_master.core.autoscale.scaling_memory import (
    MeasuredRate,
    RolePeaks,
    ScalingMemory,
)

MOST_JOBS = 5
MOST_CHARACTERS = 16 * 1024
_MOST_CORES = 100_000.0
_MOST_BYTES = 2**50
_Name = Annotated[str, Meta(max_length=253, pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?\Z")]
_RoleName = Annotated[str, Meta(max_length=20, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?\Z")]


class UnreadableProfile(ValueError):
    """The text was not written by a master."""


class RoleUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most that one member of a role has used: mean cores in a window, and bytes."""

    cpu: Annotated[float, Meta(ge=0, le=_MOST_CORES)] = 0.0
    memory: Annotated[int, Meta(ge=0, le=_MOST_BYTES)] = 0


class ProfiledJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The needs that one job has shown.

    Attributes:
        at: when the line was written.
        size: the size at which its search settled; 0 if it has not.
        rate: samples per second at that size.
        objective: the key of its objective.
        inherited: the number of jobs in a row that took the size over without a search.
    """

    job: _Name
    uid: Annotated[str, Meta(max_length=128, pattern=r"^[-0-9A-Za-z]*\Z")]
    at: Annotated[str, Meta(max_length=32, pattern=r"^[-0-9T:.Z]+\Z")]
    role: _RoleName
    size: Annotated[int, Meta(ge=0, le=MAX_REPLICAS)] = 0
    rate: Annotated[float, Meta(ge=0, le=1e15)] = 0.0
    objective: Annotated[str, Meta(max_length=200, pattern=r"^[ -~]*\Z")] = ""
    inherited: Annotated[int, Meta(ge=0, le=1000)] = 0
    roles: Annotated[dict[_RoleName, RoleUse], Meta(max_length=MAX_ROLES)] = {}


_DECODER = msgspec.json.Decoder(ProfiledJob)


def read_profile(text: str) -> tuple[ProfiledJob, ...]:
    """Return the jobs of a profile, the oldest first.

    Raises:
        UnreadableProfile: the text is too large, or not what a master writes.
    """
    if len(text) > MOST_CHARACTERS:
        raise UnreadableProfile(f"it has {len(text)} characters, more than {MOST_CHARACTERS}")
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > MOST_JOBS:
        raise UnreadableProfile(f"it has {len(lines)} lines, more than {MOST_JOBS}")
    try:
        return tuple(_DECODER.decode(line) for line in lines)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UnreadableProfile(str(error)) from error


def write_profile(jobs: tuple[ProfiledJob, ...], latest: ProfiledJob) -> str:
    """Return the text of a profile with the latest facts about a job; drop the oldest jobs."""
    kept = [*(job for job in jobs if job.uid != latest.uid), latest][-MOST_JOBS:]
    lines = [msgspec.json.encode(job).decode() for job in kept]
    while sum(len(line) + 1 for line in lines) > MOST_CHARACTERS:
        lines.pop(0)
    return "\n".join(lines) + "\n"


def profiled(
    memory: ScalingMemory, scaling: JobScaling, *, job: str, uid: str, at: str
) -> ProfiledJob | None:
    """Return what a job has shown so far; None if that is nothing."""
    uses = {
        role: RoleUse(round(min(peaks.window_cpu, _MOST_CORES), 2), min(peaks.memory, _MOST_BYTES))
        for role, peaks in memory.resources.peaks.items()
        if role in scaling.roles and peaks.window_cpu > 0
    }
    shown = ProfiledJob(
        job=job,
        uid=uid,
        at=at,
        role=scaling.role,
        objective=scaling.objective.key,
        roles=uses,
    )
    settled = memory.search.settled_size
    if settled is None or settled not in memory.rates.by_size:
        return shown if uses else None
    rate = round(memory.rates.mean(settled), 1)
    inherited = memory.search.inherited
    return msgspec.structs.replace(shown, size=settled, rate=rate, inherited=inherited)


def most_used(jobs: tuple[ProfiledJob, ...]) -> Mapping[str, RolePeaks]:
    """Return the most that one member of any of these jobs has used, by role."""
    found: dict[str, RolePeaks] = {}
    for job in jobs:
        for role, use in job.roles.items():
            before = found.get(role, RolePeaks())
            cpu = max(before.window_cpu, use.cpu)
            found[role] = RolePeaks(window_cpu=cpu, memory=max(before.memory, use.memory))
    return found


def latest_size(jobs: tuple[ProfiledJob, ...], role: str) -> ProfiledJob | None:
    """Return the latest job that has settled at a size of this role."""
    return next((job for job in reversed(jobs) if job.size and job.role == role), None)


def first_plan(
    peaks: Mapping[str, RolePeaks],
    earlier: ProfiledJob | None,
    memory: ScalingMemory,
    now: ScalingInputs,
    *,
    objective: str,
) -> ScalingDecision | None:
    """Return the size and the requests with which a job begins; None if the profile has neither.

    Args:
        peaks: the most that members of each role have used in earlier jobs.
        earlier: the latest job that has settled at a size.
        memory: the auto-scaler's state, without measurements.
        now: the job's state; its bounds follow from `peaks`.
        objective: the key of the job's objective.
    """
    size = now.size
    settled = None
    reason = ""
    if earlier is not None:
        size = allowed(earlier.size, now.bounds)
        reason = (
            f"as {earlier.job} needed on {earlier.at}, which settled at {earlier.size} with "
            f"{earlier.rate:.1f} samples/s: begin with {size}"
        )
        # A size found for another objective, or a size taken over too often, is only a beginning.
        same = earlier.size == size and earlier.objective == objective and earlier.rate > 0
        if same and earlier.inherited < MOST_JOBS - 1:
            settled = earlier
    after = begin_search(memory, size)
    if settled is not None:
        after = after.with_rates(by_size={size: MeasuredRate(settled.rate, at=now.wall)})
        after = with_settled(after, size, at_maximum=size >= now.bounds.maximum)
        after = after.with_search(inherited=settled.inherited + 1)
    # The first measurement shows the setting, which must not begin another search.
    after = after.with_servers(rates_stay_valid=bool(now.setting))
    decision = ScalingDecision(reason, after, size=size if size != now.size else None)
    decision = needs.with_requests(decision, peaks, now)
    return decision if decision.reason else None
