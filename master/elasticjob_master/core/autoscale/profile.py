"""What earlier jobs of a profile needed.

Kept as text in a ConfigMap, one line a job, read within strict bounds. Whoever may write ConfigMaps
of the namespace can have written it, so it is believed for nothing but a beginning: the written
resources, bounds and resourceLimits stand above it, and what is measured afterwards corrects it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from elasticjob_api.elasticjob import MAX_REPLICAS
from elasticjob_api.limits import MAX_ROLES
from msgspec import Meta

from elasticjob_master.core.autoscale.job_scaling import JobScaling
from elasticjob_master.core.autoscale.scaling_memory import RolePeaks, ScalingMemory

MOST_JOBS = 5
MOST_CHARACTERS = 16 * 1024
_Name = Annotated[str, Meta(max_length=253, pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?\Z")]
_RoleName = Annotated[str, Meta(max_length=20, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?\Z")]


class UnreadableProfile(ValueError):
    """The text is none that a master has written."""


class RoleUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most that one member of a role has used: mean cores in a window, and bytes."""

    cpu: Annotated[float, Meta(ge=0, le=100_000)] = 0.0
    memory: Annotated[int, Meta(ge=0, le=2**50)] = 0


class ProfiledJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one job has shown.

    Attributes:
        job: its name.
        uid: its UID.
        at: when it was written.
        role: the role that was scaled.
        size: the size at which its search settled; 0: at none.
        rate: samples per second there.
        objective: what it strove for.
        inherited: how many jobs in a row had this size from the one before, without a search of their own.
        roles: the use by role.
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
        UnreadableProfile: it is too large, or not what a master writes.
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
    """Return the text of a profile with one more job, or newer facts about it, of which the last few are kept."""
    kept = [*(job for job in jobs if job.uid != latest.uid), latest][-MOST_JOBS:]
    lines = [msgspec.json.encode(job).decode() for job in kept]
    while sum(len(line) + 1 for line in lines) > MOST_CHARACTERS:
        lines.pop(0)
    return "\n".join(lines) + "\n"


def profiled(
    memory: ScalingMemory, scaling: JobScaling, *, job: str, uid: str, at: str
) -> ProfiledJob | None:
    """Return what a job has shown so far; None: nothing yet."""
    uses = {
        role: RoleUse(round(min(peaks.steady, 100_000.0), 2), min(peaks.memory, 2**50))
        for role, peaks in memory.peaks.items()
        if role in scaling.roles and peaks.steady > 0
    }
    settled = memory.settled if memory.settled in memory.rates else None
    if not uses and settled is None:
        return None
    return ProfiledJob(
        job=job,
        uid=uid,
        at=at,
        role=scaling.role,
        size=settled or 0,
        rate=round(memory.rates[settled], 1) if settled else 0.0,
        objective=objective_text(scaling),
        inherited=memory.inherited if settled else 0,
        roles=uses,
    )


def objective_text(scaling: JobScaling) -> str:
    """Return what a job strives for, to be compared with an earlier one's."""
    return scaling.objective.key


def needed(jobs: tuple[ProfiledJob, ...]) -> Mapping[str, RolePeaks]:
    """Return by role the most that one member of any of these jobs has used."""
    found: dict[str, RolePeaks] = {}
    for job in jobs:
        for role, use in job.roles.items():
            before = found.get(role, RolePeaks())
            steady = max(before.steady, use.cpu)
            used = max(before.memory, use.memory)
            found[role] = RolePeaks(steady=steady, memory=used)
    return found


def latest_size(jobs: tuple[ProfiledJob, ...], role: str) -> ProfiledJob | None:
    """Return the latest job that has settled at a size of this role."""
    return next((job for job in reversed(jobs) if job.size and job.role == role), None)
