"""How the master's answers about a job are shown: as tables for people, as JSON for programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from elasticjob_api.times import format_time
from elasticjob_api.v1 import agent_pb2, job_pb2, shards_pb2
from google.protobuf.json_format import MessageToDict
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

UNKNOWN = "-"


@dataclass(frozen=True)
class Snapshot:
    """A job as its master sees it at one moment."""

    status: job_pb2.JobStatus
    members: tuple[agent_pb2.Member, ...]
    world: agent_pb2.World

    def rank(self, member: agent_pb2.Member) -> int | None:
        """Return the member's rank in the present world; None outside of it."""
        uids = [other.pod_uid for other in self.world.members]
        return uids.index(member.pod_uid) if member.pod_uid in uids else None


def as_json(snapshot: Snapshot) -> str:
    """Return one line: the status in protobuf's own JSON (64-bit numbers as text), and `members` with their ranks."""

    def fields(message: job_pb2.JobStatus | agent_pb2.Member) -> dict[str, object]:
        found: dict[str, object] = MessageToDict(message, always_print_fields_with_no_presence=True)
        return found

    members = [fields(member) | {"rank": snapshot.rank(member)} for member in _ordered(snapshot)]
    return json.dumps(fields(snapshot.status) | {"members": members})


def as_text(snapshot: Snapshot) -> RenderableType:
    """Return what people read: a few lines about the job, a row per member, a row per data set."""
    parts: list[RenderableType] = [_summary(snapshot.status), Text(), _members(snapshot)]
    if snapshot.status.datasets:
        parts += [Text(), _ledgers(snapshot.status.datasets)]
    return Group(*parts)


def _summary(status: job_pb2.JobStatus) -> Table:
    progress = status.progress
    rows = [
        ("Job", f"{status.namespace}/{status.job_name}"),
        ("Phase", enum(job_pb2.JobPhase.Name(status.phase), "JOB_PHASE_")),
        ("World", f"round {status.round}, size {status.world_size}"),
        ("Step", _steps(progress)),
        ("Rate", f"{progress.samples_per_second:.5g} samples/s" if progress.samples_per_second else UNKNOWN),
        ("To go", duration(progress.eta_seconds) if progress.last_report_time else UNKNOWN),
    ]
    if progress.metrics:
        rows.append(("Metrics", ", ".join(f"{name} {value:.4g}" for name, value in sorted(progress.metrics.items()))))
    if progress.stalled_since:
        rows.append(("Stalled", f"since {clock(progress.stalled_since)}"))
    if progress.stragglers:
        rows.append(("Stragglers", ", ".join(progress.stragglers)))
    if status.master_starts > 1:
        rows.append(("Master", f"started {status.master_starts} times"))
    return facts(rows)


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """Return a line per name and value."""
    made = Table(box=None, show_header=False, pad_edge=False)
    for name, value in rows:
        made.add_row(Text(name, style="bold"), Text(value))
    return made


def _steps(progress: job_pb2.Progress) -> str:
    if not progress.total_steps:
        return str(progress.step)
    return f"{progress.step}/{progress.total_steps} ({100 * progress.step // progress.total_steps} %)"


def _members(snapshot: Snapshot) -> Table:
    rows = table("ROLE", "INDEX", "RANK", "POD", "STATE", "ADDRESS", "STEP", "CPU", "MEMORY")
    for member in _ordered(snapshot):
        rank = snapshot.rank(member)
        rows.add_row(
            member.role,
            str(member.index),
            UNKNOWN if rank is None else str(rank),
            member.pod_name,
            enum(agent_pb2.MemberState.Name(member.state), "MEMBER_STATE_"),
            member.address,
            str(member.step),
            f"{member.usage.cpu_cores:.2f}" if member.HasField("usage") else UNKNOWN,
            size(member.usage.memory_bytes) if member.HasField("usage") else UNKNOWN,
        )
    return rows


def _ledgers(ledgers: Iterable[shards_pb2.Ledger]) -> Table:
    rows = table("DATASET", "SHARDS", "DONE", "LEASED", "WAITING", "RETURNED", "FAILED")
    for ledger in ledgers:
        counts = (ledger.total, ledger.done, ledger.leased, ledger.waiting, ledger.returned, ledger.failed)
        rows.add_row(ledger.dataset, *map(str, counts))
    return rows


def table(*titles: str) -> Table:
    """Return a table without lines whose cells are not wrapped."""
    made = Table(*titles, box=None, pad_edge=False, header_style="bold")
    for column in made.columns:
        column.no_wrap = True
    return made


def _ordered(snapshot: Snapshot) -> list[agent_pb2.Member]:
    return sorted(snapshot.members, key=lambda member: (member.role, member.index, member.incarnation))


def enum(name: str, prefix: str) -> str:
    """Return an enumeration's value for people."""
    return name.removeprefix(prefix).capitalize()


def size(count: int) -> str:
    """Return a number of bytes as Kubernetes writes quantities, with three digits at most: 950, 12.5Mi, 3Gi."""
    value, units = float(count), ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
    while value >= 1000 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:{'.2f' if 0 < value < 1 else '.3g'}}{units[0]}"


def duration(seconds: float) -> str:
    """Return seconds as 1h 02m, 3m 20s or 12s; a dash for a negative number, which means unknown."""
    if seconds < 0:
        return UNKNOWN
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}h {minutes % 60:02}m"
    return f"{minutes}m {rest:02}s" if minutes else f"{rest}s"


def clock(seconds: float) -> str:
    """Return seconds since the epoch as Kubernetes writes times; a dash for 0, which means never."""
    return format_time(seconds) if seconds else UNKNOWN
