"""Reads a trace of jobs for `elasticjob pool simulate`: a line of CSV for each job.

Every number is bounded, so that what is read can be played to its end.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from elasticjob_api.elasticpool import ElasticPool
from elasticjob_api.quantity import parse_quantity
from elasticjob_client.errors import ClientError, WrongArgument
from elasticjob_operator.core.sharing.curves import speed
from elasticjob_operator.core.sharing.elastic_pool import in_thousandths
from elasticjob_operator.core.sharing.model import Pool, Room
from elasticjob_operator.core.sharing.simulation import SimulatedJob

MAX_BYTES = 16 * 1024 * 1024
MAX_JOBS = 10_000
LONGEST = 31 * 86_400.0
"""The latest arrival, and the longest time that a job takes at its smallest size, in seconds."""
_MOST_MEMBERS = 10_000
_MOST_RATES = 64
_MOST_CHARACTERS = 253
_COLUMNS = ("arrival", "members", "seconds", "name", "min", "priority", "class", "throughput")


def read_trace(
    path: Path, pool: ElasticPool, resources: Sequence[str], rules: Pool, change_seconds: float
) -> list[SimulatedJob]:
    """Return the jobs of a trace.

    Raises:
        ClientError: the file cannot be read, or a line of it is no job that fits into the pool.
    """
    jobs: dict[str, SimulatedJob] = {}
    for row in _rows(path, pool):
        job = row.job(pool, resources, rules, change_seconds)
        if job.name in jobs:
            raise row.error("name", "another line has it; give each job its own")
        jobs[job.name] = job
        if len(jobs) > MAX_JOBS:
            raise ClientError(f"{path} has more than {MAX_JOBS} jobs; split it")
    if not jobs:
        raise ClientError(f"{path} has no jobs; docs/pool.md describes its columns")
    return list(jobs.values())


def _rows(path: Path, pool: ElasticPool) -> Iterator[_Row]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise WrongArgument(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise ClientError(f"{path} has more than {MAX_BYTES} bytes; split it")
    known = (*_COLUMNS, *pool.spec.capacity)
    reader = csv.DictReader(data.decode(errors="replace").splitlines(), restval="", strict=True)
    try:
        unknown = set(reader.fieldnames or ()).difference(known)
        missing = {"arrival", "members", "seconds"}.difference(reader.fieldnames or ())
        if unknown or missing:
            raise ClientError(
                f"{path}: column {min(unknown or missing)!r:.80} is "
                f"{'not known' if unknown else 'missing'}; the first line names columns out of "
                f"{', '.join(known)}"
            )
        for cells in reader:
            if None in cells:
                raise ClientError(f"{path}, line {reader.line_num}: more cells than columns")
            yield _Row(f"{path}, line {reader.line_num}", reader.line_num, cells)
    except csv.Error as error:
        raise ClientError(f"{path}, line {reader.line_num + 1}: no CSV: {error}") from error


@dataclass(frozen=True)
class _Row:
    """A line of a trace: where it is, and its cells by column."""

    place: str
    number: int
    cells: Mapping[str, str]

    def job(
        self, pool: ElasticPool, resources: Sequence[str], rules: Pool, change_seconds: float
    ) -> SimulatedJob:
        members = self._integer("members", 1, _MOST_MEMBERS)
        minimum = self._integer("min", 1, members, default=1)
        member = in_thousandths(
            {name: self._requests(name, resources) for name in resources}, resources
        )
        if Room(rules.capacity).fits(member) < members:
            raise self.error("members", "they exceed spec.capacity of the pool")
        rate = speed(self._rates())
        samples = self._number("seconds", 1, LONGEST) * rate(members)
        if samples / rate(minimum) > LONGEST:
            raise self.error("seconds", f"with min it takes longer than {LONGEST:.0f} s")
        name = self.cells.get("name") or f"line-{self.number}"
        if len(name) > _MOST_CHARACTERS:
            raise self.error("name", f"give one of at most {_MOST_CHARACTERS} characters")
        return SimulatedJob(
            name=name,
            arrives=self._number("arrival", 0, LONGEST),
            asked=members,
            rate=rate,
            samples=samples,
            minimum=minimum,
            member=member,
            priority=self._integer("priority", -(2**31), 2**31, default=0),
            weight=pool.spec.weights.get(self.cells.get("class", ""), 1.0),
            change_seconds=change_seconds,
        )

    def error(self, column: str, problem: str) -> ClientError:
        value = self.cells.get(column, "")
        return ClientError(f"{self.place}: {column} {value!r:.80}: {problem}")

    def _number(self, column: str, least: float, most: float) -> float:
        try:
            value = float(self.cells[column])
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise self.error(column, f"give a number from {least:.0f} to {most:.0f}")
        return value

    def _integer(self, column: str, least: int, most: int, default: int | None = None) -> int:
        if default is not None and not self.cells.get(column):
            return default
        value = self._number(column, least, most)
        if value != int(value):
            raise self.error(column, "give a whole number")
        return int(value)

    def _requests(self, resource: str, resources: Sequence[str]) -> Decimal:
        """Return what a member takes of a resource; 1 if the pool counts no other one."""
        given = self.cells.get(resource) or ("1" if len(resources) == 1 else "")
        try:
            return parse_quantity(given)
        except ValueError as error:
            raise self.error(
                resource, "give what a member takes, such as 500m, 2 or 4Gi"
            ) from error

    def _rates(self) -> dict[int, float]:
        """Return the measured throughput by size, from pairs such as `1:105 4:380`."""
        text = self.cells.get("throughput", "")
        pairs = [pair.partition(":") for pair in text.split()]
        try:
            rates = {int(size): float(rate) for size, _, rate in pairs}
        except ValueError:
            rates = {0: 0.0}
        is_valid = all(
            0 < size <= _MOST_MEMBERS and 1e-6 <= rate <= 1e15 for size, rate in rates.items()
        )
        if not is_valid or len(pairs) > _MOST_RATES:
            raise self.error(
                "throughput",
                f"give at most {_MOST_RATES} pairs of a size and its samples per second, such as "
                "1:105 4:380",
            )
        return rates
