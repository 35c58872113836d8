"""`elasticjob pool simulate`: what a pool would do with the jobs of a trace, without a cluster.

The decisions are the operator's own, which are pure functions of its package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from elasticjob_api.elasticpool import ElasticPool
from elasticjob_client.errors import ClientError, WrongArgument
from elasticjob_client.jobs import read
from elasticjob_kube.resources import ELASTIC_POOLS
from elasticjob_operator.core.sharing.elastic_pool import rules_of
from elasticjob_operator.core.sharing.model import Pool
from elasticjob_operator.core.sharing.simulation import (
    CHANGE_SECONDS,
    Decide,
    Outcome,
    SimulatedJob,
    first_come,
    play,
    pooled,
)

from elasticjob_cli.common.arguments import Argument, Option
from elasticjob_cli.common.formats import DataFormat, DataOutput
from elasticjob_cli.common.formatting import UNKNOWN, format_duration, table_of
from elasticjob_cli.common.options import reported
from elasticjob_cli.common.printing import print_data
from elasticjob_cli.common.tables import show
from elasticjob_cli.jobs.pool_traces import LONGEST, read_trace

_FIRST_COME = "first come, fixed sizes"
_LONGEST = 12 * LONGEST
"""Simulated seconds after which the jobs must have ended."""


def simulate(
    manifest: Annotated[Path, Argument(help="File of one ElasticPool.", metavar="POOL_FILE")],
    trace: Annotated[Path, Option("--trace", help="CSV file with a line per job: docs/pool.md.")],
    change_seconds: Annotated[
        float,
        Option(
            "--change-seconds",
            help="How long a change of its size stops a job.",
            min=0.0,
            max=3600.0,
        ),
    ] = CHANGE_SECONDS,
    output: DataOutput = DataFormat.TABLE,
) -> None:
    """Play the jobs of a trace with a pool, and with fixed sizes; no cluster is needed.

    For both: the mean and the 99th percentile of the times from arrival to end, the changes of
    size per hour of a running job, how many jobs end later than with fixed sizes, and the one that
    loses most.
    """
    with reported():
        pool = _pool_of(manifest)
        try:
            resources, rules = rules_of(pool, {})
        except ValueError as error:
            raise WrongArgument(f"{manifest}: spec.capacity: {error}") from error
        jobs = read_trace(trace, pool, resources, rules, change_seconds)
        lines = _played(jobs, rules)
        if output is DataFormat.JSON:
            print_data([line.values() for line in lines], json_=True)
            return
        base = lines[0].outcome
        columns: dict[str, Callable[[_Line], str]] = {
            "JOBS": lambda line: line.name,
            "MEAN": lambda line: _compared(line.outcome.mean, base.mean),
            "99TH PERCENTILE": lambda line: _compared(line.outcome.percentile, base.percentile),
            "CHANGES/HOUR": lambda line: f"{line.outcome.changes_per_hour:.2f}",
            "LATER": lambda line: str(line.later),
            "WORST": lambda line: f"{line.worst} ({line.harm:.2f})" if line.later else UNKNOWN,
        }
        show(table_of(lines, columns))


@dataclass(frozen=True)
class _Line:
    """One variant.

    Attributes:
        name: what it is.
        outcome: what became of the jobs.
        later: how many jobs took longer than with fixed sizes.
        worst: the job that lost most.
        harm: its time, as a part of that with fixed sizes.
    """

    name: str
    outcome: Outcome
    later: int
    worst: str
    harm: float

    def values(self) -> dict[str, object]:
        """Return it for programs."""
        return {
            "variant": self.name,
            "meanSeconds": self.outcome.mean,
            "percentile99Seconds": self.outcome.percentile,
            "changesPerJobHour": self.outcome.changes_per_hour,
            "laterJobs": self.later,
            "worstJob": self.worst,
            "worstRatio": self.harm,
            "seconds": dict(self.outcome.seconds),
        }


def _played(jobs: Sequence[SimulatedJob], rules: Pool) -> list[_Line]:
    variants: dict[str, Decide] = {
        _FIRST_COME: first_come(rules.capacity),
        f"ElasticPool {rules.name}, {rules.policy}": pooled(rules),
    }
    lines: list[_Line] = []
    for name, decide in variants.items():
        outcome = play([replace(job, rates={}) for job in jobs], decide, _LONGEST)
        if outcome.unfinished:
            raise ClientError(
                f"{name}: {outcome.unfinished} jobs have not ended after "
                f"{_LONGEST / 86_400:.0f} simulated days; give fewer jobs or more capacity"
            )
        lines.append(_line(name, outcome, lines[0].outcome if lines else outcome))
    return lines


def _line(name: str, outcome: Outcome, base: Outcome) -> _Line:
    parts = {job: seconds / base.seconds[job] for job, seconds in outcome.seconds.items()}
    worst = max(parts, key=lambda job: parts[job])
    return _Line(name, outcome, sum(part > 1 for part in parts.values()), worst, parts[worst])


def _compared(seconds: float, base: float) -> str:
    return f"{format_duration(seconds)} ({seconds / base:.2f})"


def _pool_of(path: Path) -> ElasticPool:
    """Return the pool of a manifest. Raises `ClientError`."""
    from elasticjob_api import yaml_documents  # slow, and the other commands of pools need none

    try:
        with path.open("rb") as file:
            text = file.read(yaml_documents.MAX_BYTES + 1).decode(errors="replace")
    except OSError as error:
        raise WrongArgument(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        found = yaml_documents.read(text)
    except yaml_documents.Unreadable as error:
        raise ClientError(f"{path}: {error}") from error
    kind = ELASTIC_POOLS.kind
    if len(found) != 1 or not isinstance(found[0], dict) or found[0].get("kind") != kind:
        raise WrongArgument(f"{path} is not the manifest of one {kind}")
    pool = read(found[0], ElasticPool)
    if not pool.spec.capacity:
        raise WrongArgument(
            f"{path}: spec.capacity is not given, and no nodes are known here; say what the jobs "
            "may hold together"
        )
    return pool
