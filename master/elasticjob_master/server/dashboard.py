"""The dashboard: one page without a secret in it, and what it reads with the job's token.

The page names its own script and style by their hashes, so a browser runs nothing else there, whatever a job's names,
messages or metrics contain.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import msgspec
from google.protobuf.json_format import MessageToDict

from elasticjob_master.config import Config
from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.server.autoscaling import autoscaling

MOST_MEMBERS = 500
"""How many are listed; all are counted."""


class Page:
    """The page, and the headers it is served with."""

    def __init__(self) -> None:
        self.text = files(__package__).joinpath("dashboard.html").read_text()
        self.headers: Mapping[str, str] = {
            "Content-Security-Policy": "; ".join(
                (
                    "default-src 'none'",
                    f"script-src {_hash(self.text, 'script')}",
                    f"style-src {_hash(self.text, 'style')}",
                    "connect-src 'self'",
                    "base-uri 'none'",
                    "form-action 'none'",
                    "frame-ancestors 'none'",
                )
            ),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }


def status(controller: Controller, config: Config) -> bytes:
    """Return what the page shows, as JSON."""
    return msgspec.json.encode(
        {
            "namespace": config.namespace,
            "job": config.job_name,
            "phase": controller.phase,
            "round": controller.rendezvous.round,
            "worldSize": len(controller.rendezvous.world),
            "masterStarts": controller.master_starts,
            "progress": _progress(controller),
            "members": _members(controller),
            "datasets": [{"name": ledger.dataset.name} | asdict(ledger.account()) for ledger in controller.ledgers],
            "samples": [sample._asdict() for sample in controller.history.samples()],
            "events": [
                {"time": event.time, "reason": event.reason, "message": event.text()}
                for event in controller.history.events()
            ],
            "plans": controller.plans.summaries(),
            "autoscaling": _autoscaling(controller),
        }
    )


def _progress(controller: Controller) -> dict[str, Any]:
    progress, now = controller.progress, controller.now()
    return {
        "step": progress.step,
        "totalSteps": progress.total_steps,
        "samplesPerSecond": progress.samples_per_second(now),
        "stepsPerSecond": progress.steps_per_second(now),
        "etaSeconds": progress.eta_seconds(now),
        "lastReportTime": progress.reported_at,
        "metrics": progress.metrics,
        "stalledSince": controller.health_monitor.stalled_since,
        "stragglers": controller.health_monitor.stragglers,
        "whyNotReplaced": controller.scaling.replacer.why_not,
    }


def _autoscaling(controller: Controller) -> dict[str, Any]:
    """Return what `GetAutoscaling` does; every field is there, also those that are 0 or empty."""
    known = autoscaling(controller.scaling, controller, controller.now(), wall=time.time())
    return MessageToDict(known, always_print_fields_with_no_presence=True)


def _members(controller: Controller) -> dict[str, Any]:
    ranks = {uid: rank for rank, uid in enumerate(controller.rendezvous.world)}
    members = sorted(controller.members, key=lambda member: (member.identity.role, member.identity.index))
    return {
        "counts": Counter(member.state for member in members),
        "list": [_member(member, ranks.get(member.uid)) for member in members[:MOST_MEMBERS]],
    }


def _member(member: Member, rank: int | None) -> dict[str, Any]:
    who, usage = member.identity, member.usage
    return {
        "pod": who.pod_name,
        "node": who.node_name,
        "rank": rank,
        "state": member.state,
        "step": member.step,
        "cpuCores": usage.cpu_cores,
        "memoryBytes": usage.memory_bytes,
        "gpuPercent": usage.gpu_percent,
        "stepSeconds": member.step_times.step_seconds,
        "straggler": member.step_times.straggler,
    }


def _hash(page: str, element: str) -> str:
    """Return the hash of the page's one script or style, as a content security policy names it."""
    [content] = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
