"""Replaces the host names that other operators give to pods. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from elasticjob_cli.convert.peers import Jobs, PeerJob

_NO_PATH = r"(?<![\w.-])(?<![^/]/)(?<!^/)"
"""A host name may follow `//`, but what follows a single slash is a part of a path."""
_DOMAIN = r"(?![\w-])(?P<domain>(?:\.[a-z0-9-]{1,63})*)"
_SUFFIX_OF_A_FILE = re.compile(r"\.(?:log|txt|json|ya?ml|pt|pth|out|err|csv)")


def member(pod: str, job: PeerJob) -> tuple[str, int] | None:
    """Return role and index of the member for a pod of a job; None if it is no pod of it."""
    found = re.fullmatch(job.pods, pod) if job.pods else None
    return _member(found, job) if found else None


def job_of_pod(pod: str, jobs: Jobs) -> PeerJob | None:
    """Return the job of a pod's name; None if it is no pod of the jobs."""
    return next((job for job in jobs.values() if member(pod, job)), None)


def replaced(text: str, jobs: Iterable[PeerJob], changes: dict[str, str]) -> str:
    """Return a text with our host names for those of the jobs' pods.

    Args:
        text: a word of a command, or the value of a variable.
        jobs: the jobs.
        changes: gets our name for each of theirs that is in the text.
    """
    for job in jobs:
        if job.pods and job.name in text:
            text = _replaced_of_job(text, job, changes)
    return text


def _replaced_of_job(text: str, job: PeerJob, changes: dict[str, str]) -> str:
    pattern = re.compile(rf"{_NO_PATH}(?:{job.pods}){_DOMAIN}")
    return pattern.sub(lambda found: _replaced(found, job, changes), text)


def _member(found: re.Match[str], job: PeerJob) -> tuple[str, int] | None:
    group = job.groups.get((found["type"] or "launcher").lower())
    return (group.role, group.first + int(found["index"] or 0)) if group else None


def _replaced(found: re.Match[str], job: PeerJob, changes: dict[str, str]) -> str:
    host = found[0]
    domain = found["domain"]
    is_path = found.string.startswith("/", found.end())
    is_url = found.string.endswith("//", 0, found.start())
    if (is_path and not is_url) or _SUFFIX_OF_A_FILE.fullmatch(domain):
        return host
    if (ours := _member(found, job)) is None:
        return host
    if job.in_subdomain and (domain + ".").startswith(f".{job.name}."):
        domain = domain[1 + len(job.name) :]
    role, index = ours
    changes[host] = f"{role}-{index}.{job.ours}{domain}"
    return changes[host]
