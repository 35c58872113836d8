"""Reads and makes the JSON messages between a training process and its agent. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticjob_api.limits import MAX_SLOTS
from elasticjob_api.step_report import StepReport
from elasticjob_api.v1 import agent_pb2 as pb

MOST_FRAMES = 64
MOST_THREADS = 8
LONGEST_TEXT = 500


def step_report(message: dict[str, Any], *, round_: int, local_rank: int) -> StepReport:
    """Return the step report in a message.

    Raises TypeError, ValueError, AttributeError or OverflowError if a field is not what it must be.
    """
    metrics = (message.get("metrics") or {}).items()
    return StepReport(
        round=round_,
        local_rank=local_rank,
        step=_count(message["step"]),
        total_steps=_count(message.get("total") or 0),
        samples=float(message.get("samples", 0)),
        seconds=float(message.get("seconds", 0)),
        metrics={_encodable(name): float(value) for name, value in metrics},
        steps=_count(message.get("steps", 0)),
        compute_seconds=float(message.get("compute_seconds", 0)),
        save_seconds=float(message.get("save_seconds", 0)),
        saved_bytes=_count(message.get("saved_bytes", 0)),
    )


def local_place(message: dict[str, Any]) -> tuple[int, int]:
    """Return the local rank that a process introduces itself with, and the number of processes.

    Raises ValueError if they are not such numbers; the message is for the process.
    """
    rank = message["process"]
    size = message.get("of")
    if isinstance(rank, int) and isinstance(size, int) and 0 <= rank < size <= MAX_SLOTS:
        return rank, size
    raise ValueError(
        f"process must be a number from 0 to of - 1, and of at most {MAX_SLOTS}, "
        f"not {rank!r} of {size!r}"
    )


def texts(value: Any, most: int) -> list[str]:
    """Return the first texts of a list, each within a bound; of anything else, none."""
    found = value[:most] if isinstance(value, list) else []
    return [_encodable(str(each)[:LONGEST_TEXT]) for each in found]


def world_size(world: pb.World) -> int:
    """Return the number of processes of a world."""
    return world.process_count or sum(max(1, member.processes) for member in world.members)


def processes(members: Sequence[pb.Member]) -> list[dict[str, Any]]:
    """Return the processes of a world, by rank."""
    return [
        {
            "pod": member.pod_name,
            "role": member.role,
            "index": member.index,
            "address": member.address,
            "node": member.node_name,
            "local_rank": local_rank,
        }
        for member in members
        for local_rank in range(max(1, member.processes))
    ]


def _encodable(text: str) -> str:
    """Return a text; raise ValueError for half a surrogate pair, which JSON allows."""
    text.encode()
    return text


def _count(value: Any) -> int:
    number = int(value)
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{number} is not a step number")
    return number
