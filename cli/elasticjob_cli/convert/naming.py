"""Makes names of jobs and roles valid; equal names give equal results. Pure."""

from __future__ import annotations

import hashlib
import re

from elasticjob_api.names import ROLE_MASTER

MAX_JOB_NAME = 40
MAX_ROLE_NAME = 20
_GENERATED_CHARACTERS = 5
"""Characters that Kubernetes appends to a `generateName`."""
_VALID = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LIKE_A_MEMBER = re.compile(r".*-[0-9]+")


def job_name(name: str) -> str:
    """Return a job's name as a valid name of an ElasticJob."""
    if _VALID.fullmatch(name) and len(name) <= MAX_JOB_NAME:
        return name
    return _made(name, MAX_JOB_NAME, "job")


def job_prefix(prefix: str) -> str:
    """Return a `generateName` as a valid one of an ElasticJob."""
    room = MAX_JOB_NAME - _GENERATED_CHARACTERS
    if len(prefix) <= room and _VALID.fullmatch(prefix + "0"):
        return prefix
    return _made(prefix, room - 1, "job") + "-"


def role_name(name: str) -> str:
    """Return the name of a group of pods as a valid name of a role."""
    usable = _VALID.fullmatch(name) and not _LIKE_A_MEMBER.fullmatch(name) and name != ROLE_MASTER
    if usable and len(name) <= MAX_ROLE_NAME:
        return name
    return _made(name, MAX_ROLE_NAME, "role")


def _made(name: str, most: int, otherwise: str) -> str:
    """Return a valid name: the usable characters, and a part of the hash, which keeps it unique."""
    usable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not usable or not usable[0].isalpha():
        usable = f"{otherwise}-{usable}".rstrip("-")
    mark = "h" + hashlib.sha256(name.encode()).hexdigest()[:5]
    return f"{usable[: most - len(mark) - 1].rstrip('-')}-{mark}"
