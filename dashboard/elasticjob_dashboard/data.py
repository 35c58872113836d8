"""The data that the page shows, as JSON, from the answers of a job's master."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from elasticjob_api.meta import describe_for_threads
from elasticjob_api.v1 import agent_pb2, job_pb2, shards_pb2
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from elasticjob_dashboard.first_failure import first_failure

_SAMPLE = ("time", "round", "world_size", "step", "samples_per_second")
_EVENT = ("time", "reason", "message")
_PLAN = ("name", "source", "phase", "reason", "message", "created", "completed")
_DATASET = ("total", "done", "leased", "waiting", "returned", "failed", "growing")
_LONGEST_PROBLEM = 300
Sections = Mapping[str, bytes]
"""The parts of the page's data by their names; each is JSON on one line."""
NAMES = (
    "namespace", "job", "phase", "asOf", "round", "worldSize", "masterStarts", "progress",
    "members", "datasets", "samples", "events", "plans", "autoscaling", "report",
    "firstFailure",
)  # fmt: skip
_EMPTY = msgspec.Raw()
_KNOWN = msgspec.defstruct("_Known", [(name, msgspec.Raw, _EMPTY) for name in NAMES])
describe_for_threads(_KNOWN)


def page_data(answers: job_pb2.StoredAnswers, *, ended: bool = False) -> bytes:
    """Return the page's data as JSON; see `page_sections`."""
    return msgspec.json.encode(
        {name: msgspec.Raw(part) for name, part in page_sections(answers, ended=ended).items()}
    )


def sections_of(data: bytes) -> Sections:
    """Return the sections of the page's data that the page knows. Raises `msgspec.DecodeError`.

    Args:
        data: the answer of a master of any version, or of another program in its place.
    """
    try:
        found = msgspec.json.decode(data, type=_KNOWN)
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error
    parts = {name: bytes(getattr(found, name)) for name in NAMES}
    # JSON has line ends only between values: a section remains on one line of a stream.
    return {name: part.replace(b"\n", b" ") for name, part in parts.items() if part}


def page_sections(answers: job_pb2.StoredAnswers, *, ended: bool = False) -> Sections:
    """Return the page's data in sections, of which a stream sends those that have changed.

    Args:
        answers: the answers of the master.
        ended: the job has no master any more, and these are the last answers.
    """
    status = answers.status
    phase = phase_name(status.phase)
    as_of = None
    if ended:
        phase = answers.report.outcome.phase
        as_of = answers.time
    history = answers.history
    sections = {
        "namespace": status.namespace,
        "job": status.job_name,
        "phase": phase,
        "asOf": as_of,
        "round": status.round,
        "worldSize": status.world_size,
        "masterStarts": status.master_starts,
        "progress": _progress(status.progress),
        "members": {
            "counts": _sorted(answers.member_counts),
            "list": [_member(each, answers.ranks) for each in answers.members.members],
        },
        "datasets": [_dataset(each) for each in status.datasets],
        "samples": [
            _some(each, _SAMPLE) | {"metrics": _sorted(each.metrics), "spent": _spent(each)}
            for each in history.samples
        ],
        "events": [_some(each, _EVENT) for each in history.events],
        "plans": [_some(each, _PLAN) for each in answers.plans.plans],
        "autoscaling": _all(answers.autoscaling),
        "report": _all(answers.report),
        "firstFailure": first_failure(answers),
    }
    return {name: msgspec.json.encode(part) for name, part in sections.items()}


def phase_name(phase: job_pb2.JobPhase.ValueType) -> str:
    """Return a phase as the page shows it."""
    return job_pb2.JobPhase.Name(phase).removeprefix("JOB_PHASE_").lower()


def _progress(progress: job_pb2.Progress) -> dict[str, Any]:
    eta = progress.eta_seconds
    return {
        "step": progress.step,
        "totalSteps": progress.total_steps,
        "samplesPerSecond": progress.samples_per_second,
        "stepsPerSecond": progress.steps_per_second,
        "etaSeconds": None if eta < 0 else eta,
        "lastReportTime": progress.last_report_time or None,
        "metrics": _sorted(progress.metrics),
        "stalledSince": progress.stalled_since or None,
        "stragglers": list(progress.stragglers),
        "whyNotReplaced": progress.why_not_replaced,
    }


def _member(member: agent_pb2.Member, ranks: Mapping[str, int]) -> dict[str, Any]:
    state = agent_pb2.MemberState.Name(member.state)
    return {
        "pod": member.pod_name,
        "earlierPods": member.incarnation,
        "restarts": member.restarts,
        "node": member.node_name,
        "rank": ranks.get(member.pod_uid),
        "state": state.removeprefix("MEMBER_STATE_").lower(),
        "step": member.step,
        "cpuCores": member.usage.cpu_cores,
        "memoryBytes": member.usage.memory_bytes,
        "gpuPercent": member.usage.gpu_percent,
        "gpuMemoryBytes": member.usage.gpu_memory_bytes,
        "stepSeconds": member.step_seconds,
        "straggler": member.straggler,
        "problem": member.check_problem[:_LONGEST_PROBLEM],
    }


def _spent(sample: job_pb2.Sample) -> dict[str, float] | None:
    """Return the seconds of each activity up to a sample; None from an earlier master."""
    return _all(sample.spent) if sample.HasField("spent") else None


def _dataset(ledger: shards_pb2.Ledger) -> dict[str, Any]:
    return {"name": ledger.dataset} | _some(ledger, _DATASET)


def _some(message: Message, fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: getattr(message, field) for field in fields}


def _sorted(values: Mapping[str, float]) -> dict[str, float]:
    """Return values in the order of their names, as protobuf's maps have no constant order."""
    return dict(sorted(dict(values).items()))


def _all(message: Message) -> dict[str, Any]:
    """Return all fields, also those that are 0 or empty."""
    return MessageToDict(message, always_print_fields_with_no_presence=True)
