"""The dashboard.

One page without a secret in it, and the data it reads, of a master or of what a master has stored.
The page names its own script and style by their hashes, so a browser runs nothing else there,
whatever a job's names, messages or metrics contain.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import msgspec
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from elasticjob_api.v1 import agent_pb2, job_pb2


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


def page_data(answers: job_pb2.StoredAnswers, *, ended: bool = False) -> bytes:
    """Return what the page shows, as JSON.

    Args:
        answers: of the master.
        ended: there is no master any more, so these are its last ones.
    """
    status = answers.status
    return msgspec.json.encode(
        {
            "namespace": status.namespace,
            "job": status.job_name,
            "phase": answers.report.outcome.phase if ended else phase_name(status.phase),
            "asOf": answers.time if ended else None,
            "round": status.round,
            "worldSize": status.world_size,
            "masterStarts": status.master_starts,
            "progress": _progress(status.progress),
            "members": {
                "counts": dict(answers.member_counts),
                "list": [_member(each, answers.ranks) for each in answers.members.members],
            },
            "datasets": [_dataset(each) for each in status.datasets],
            "samples": [
                {
                    "time": each.time,
                    "round": each.round,
                    "world_size": each.world_size,
                    "step": each.step,
                    "samples_per_second": each.samples_per_second,
                    "metrics": dict(each.metrics),
                }
                for each in answers.history.samples
            ],
            "events": [
                {"time": each.time, "reason": each.reason, "message": each.message}
                for each in answers.history.events
            ],
            "plans": [
                {
                    "name": each.name,
                    "source": each.source,
                    "phase": each.phase,
                    "reason": each.reason,
                    "message": each.message,
                    "created": each.created,
                    "completed": each.completed,
                }
                for each in answers.plans.plans
            ],
            "autoscaling": _fields(answers.autoscaling),
            "report": _fields(answers.report),
        }
    )


def phase_name(phase: job_pb2.JobPhase.ValueType) -> str:
    """Return a phase as the page shows it."""
    return job_pb2.JobPhase.Name(phase).removeprefix("JOB_PHASE_").lower()


def state_name(state: agent_pb2.MemberState.ValueType) -> str:
    """Return a member's state as the page shows it."""
    return agent_pb2.MemberState.Name(state).removeprefix("MEMBER_STATE_").lower()


def _progress(progress: job_pb2.Progress) -> dict[str, Any]:
    return {
        "step": progress.step,
        "totalSteps": progress.total_steps,
        "samplesPerSecond": progress.samples_per_second,
        "stepsPerSecond": progress.steps_per_second,
        "etaSeconds": None if progress.eta_seconds < 0 else progress.eta_seconds,
        "lastReportTime": progress.last_report_time or None,
        "metrics": dict(progress.metrics),
        "stalledSince": progress.stalled_since or None,
        "stragglers": list(progress.stragglers),
        "whyNotReplaced": progress.why_not_replaced,
    }


def _member(member: agent_pb2.Member, ranks: Mapping[str, int]) -> dict[str, Any]:
    return {
        "pod": member.pod_name,
        "node": member.node_name,
        "rank": ranks.get(member.pod_uid),
        "state": state_name(member.state),
        "step": member.step,
        "cpuCores": member.usage.cpu_cores,
        "memoryBytes": member.usage.memory_bytes,
        "gpuPercent": member.usage.gpu_percent,
        "stepSeconds": member.step_seconds,
        "straggler": member.straggler,
    }


def _dataset(ledger: Any) -> dict[str, Any]:
    counts = ("total", "done", "leased", "waiting", "returned", "failed")
    return {"name": ledger.dataset} | {count: getattr(ledger, count) for count in counts}


def _fields(message: Message) -> dict[str, Any]:
    """Return all fields, also those that are 0 or empty."""
    return MessageToDict(message, always_print_fields_with_no_presence=True)


def _hash(page: str, element: str) -> str:
    """Return the hash of the page's one script or style, as a content security policy names it."""
    [content] = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
