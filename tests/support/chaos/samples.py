"""Counts the samples of a job from the logs of its training processes.

Pure except for reading the files.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticjob_api.meta import Json

from tests.support.chaos import independent_training, synchronous_training
from tests.support.chaos.training import END

_SHOWN = 8


@dataclass
class Account:
    """The result for a job's shards.

    Attributes:
        samples: the number of samples that count.
        again: the number of those trained more than once.
        findings: the problems.
    """

    samples: int = 0
    again: int = 0
    findings: list[str] = field(default_factory=list)


@dataclass
class ProcessLog:
    """The log of one training process."""

    name: str
    begin: Json
    lines: list[Json]

    def all(self, what: str) -> list[Any]:
        """Return the values of all lines of a kind."""
        return [line[what] for line in self.lines if what in line]


def read_logs(folder: Path) -> list[ProcessLog]:
    """Read all logs of a job; the last line of a killed process may be incomplete."""
    logs = []
    for path in sorted(folder.glob("*.jsonl")):
        lines = [
            json.loads(line)
            for line in path.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]
        if lines:
            logs.append(ProcessLog(path.stem, lines[0], lines[1:]))
    return logs


def account_of(program: str, folder: Path, samples: int) -> Account:
    """Count the samples of a job that has succeeded."""
    logs = read_logs(folder / "log")
    account = (
        _independent(logs, samples)
        if program == "independent"
        else _in_model(logs, _final(program, folder / "volume"), samples)
    )
    trained = Counter(shard for log in logs for shard in log.all("trained"))
    account.again = sum(trained.values()) - len(trained)
    ranks = Counter((log.begin["round"], log.begin["rank"]) for log in logs)
    for (round_, rank), number in ranks.items():
        if number > 1:
            account.findings.append(f"round {round_} had {number} processes of rank {rank}")
    return account


def _independent(logs: list[ProcessLog], samples: int) -> Account:
    size = independent_training.SHARD_SIZE
    committed = {shard for log in logs for shard in log.all("committed")}
    account = Account(samples=len(committed) * size)
    _compare(account, "committed", Counter(committed), samples // size)
    stored_at: dict[int, float] = {}
    for line in (line for log in logs for line in log.lines):
        for shard in line.get("stored", ()):
            stored_at[shard] = min(line["at"], stored_at.get(shard, line["at"]))
    for log in logs:
        late = [
            shard
            for shard in log.all("trained")
            if stored_at.get(shard, log.begin["at"]) < log.begin["at"]
        ]
        if late:
            account.findings.append(
                f"{log.name} has leased shards that were stored before it began: {late[:_SHOWN]}"
            )
    return account


def _final(program: str, volume: Path) -> Json:
    if program == "synchronous":
        return synchronous_training.newest(volume)
    try:
        return {"model": json.loads((volume / END).read_text()), "end": True}
    except FileNotFoundError:
        return {"model": [], "end": False}


def _in_model(logs: list[ProcessLog], final: Json, samples: int) -> Account:
    size = synchronous_training.SHARD_SIZE
    model = Counter(shard for shard, _, _ in final["model"])
    account = Account(samples=model.total() * size)
    if not final["end"]:
        account.findings.append("the newest checkpoint is not that of the end")
    _compare(account, "in the model", model, samples // size)
    trained = {
        (shard, log.begin["round"], log.begin["rank"])
        for log in logs
        for shard in log.all("trained")
    }
    if untrained := [each for each in map(tuple, final["model"]) if each not in trained]:
        account.findings.append(f"in the model, but not trained: {untrained[:_SHOWN]}")
    return account


def _compare(account: Account, where: str, found: Counter[int], shards: int) -> None:
    if missing := sorted(set(range(shards)) - found.keys()):
        account.findings.append(
            f"{len(missing)} of {shards} shards lost, not {where}: {missing[:_SHOWN]}"
        )
    if twice := sorted(shard for shard, number in found.items() if number > 1):
        account.findings.append(f"{len(twice)} shards twice {where}: {twice[:_SHOWN]}")
    if strange := sorted(found.keys() - set(range(shards))):
        account.findings.append(f"shards that are none: {strange[:_SHOWN]}")
