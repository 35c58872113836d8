"""Determines from a pod's name which pod of a job it is.

Users can edit labels and owner references. Nobody can edit the name, which contains role, index
and incarnation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from elasticjob_api import names

_MEMBER = re.compile(r"(.+?)-(0|[1-9][0-9]{0,9})(?:-([1-9][0-9]{0,9}))?")
"""Role, index and incarnation. No role's name ends in a dash and a number."""
_MASTER = re.compile(rf"{names.ROLE_MASTER}(?:-([1-9][0-9]{{0,9}}))?")


MemberKey = tuple[str, int]
"""Role and index of a member; the index of a master is -1."""


@dataclass(frozen=True)
class MemberIdentity:
    """Which pod of a job it is; the index of a master is -1."""

    role: str
    index: int
    incarnation: int


def member_of_name(job: str, pod: str) -> MemberIdentity | None:
    """Return which pod of a job has this name; None when no pod of the job can have it."""
    rest = pod.removeprefix(f"{job}-")
    if rest == pod:
        return None
    if (master := _MASTER.fullmatch(rest)) is not None:
        return MemberIdentity(names.ROLE_MASTER, -1, int(master[1] or 0))
    member = _MEMBER.fullmatch(rest)
    if member is None:
        return None
    return MemberIdentity(member[1], int(member[2]), int(member[3] or 0))
