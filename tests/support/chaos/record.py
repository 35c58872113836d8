"""Records every action of a chaos run with its time in a file, and the problems found."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.chaos.latencies import DISTURBING, Latencies


@dataclass
class Record:
    """The events, as lines of JSON in a file; problems are printed too."""

    file: Path
    began: float = field(default_factory=time.monotonic)
    faults: Counter[str] = field(default_factory=Counter)
    """The number of faults that hit a target, by kind."""
    missed: Counter[str] = field(default_factory=Counter)
    """The number of faults that found no target."""
    jobs: int = 0
    samples: int = 0
    twice: int = 0
    """Samples that were trained again because a process did not report them in time."""
    findings: list[str] = field(default_factory=list)
    latencies: Latencies = field(default_factory=Latencies)
    _kills: dict[str, list[float]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self.began

    def write(self, what: str, **more: Any) -> None:
        """Add a line."""
        line = {"at": round(self.seconds, 2), "what": what, **more}
        with self.file.open("a") as file:
            file.write(json.dumps(line, default=str) + "\n")

    def fault(self, kind: str, seconds: float, hit: str | None) -> None:
        """Add a fault and its target."""
        self.write("fault", kind=kind, seconds=seconds, hit=hit)
        (self.faults if hit else self.missed)[kind] += 1
        if hit and kind in DISTURBING:
            self._kills.setdefault(hit.removeprefix("Pod ").split("-worker")[0], []).append(
                time.monotonic()
            )

    def kills(self, job: str) -> list[float]:
        """Return the times when members of a job were killed, on the monotonic clock."""
        return self._kills.get(job, [])

    def finding(self, text: str) -> None:
        """Add a problem."""
        self.findings.append(text)
        self.write("finding", text=text)
        self.say(f"FINDING {text}")

    def check_hits(self, kinds: set[str]) -> None:
        """Add a problem if faults of these kinds were to come, and none has hit a target."""
        if kinds and not self.faults:
            self.finding(f"no fault has hit anything, and {self.missed.total()} found no target")

    def say(self, text: str) -> None:
        """Print a line with its time."""
        sys.stdout.write(f"{self.seconds:7.1f} {text}\n")
        sys.stdout.flush()

    def table(self, seed: int, minutes: float) -> str:
        """Return the run as a table."""
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(self.faults.items()))
        missed = ", ".join(f"{kind} {number}" for kind, number in sorted(self.missed.items()))
        rows = [
            ("seed", str(seed)),
            ("minutes", f"{minutes:g}"),
            ("jobs", str(self.jobs)),
            ("samples", str(self.samples)),
            ("trained again", str(self.twice)),
            *self.latencies.rows(),
            ("faults", f"{self.faults.total()}: {kinds}"),
            ("nothing to hit", missed or "-"),
            ("findings", str(len(self.findings))),
            *(("", text) for text in self.findings),
        ]
        return "\n".join(f"{name:<15} {value}" for name, value in rows)
