"""The CPU seconds of decisions by job, for the metrics and for the turns of jobs.

What users write decides how long a decision takes, and no other job can be served meanwhile. So
each job pays for its decisions by waiting for its next ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from elasticjob_operator.job_keys import JobKey

MAX_SERIES = 500
"""The number of jobs with metrics of their own."""
FREE_SECONDS = 0.5
"""CPU seconds of decisions that a job may use at once without a pause. Those of a job with a
thousand members take hundredths of a second, so that a lost member is replaced at once.
"""
PAUSE_PER_SECOND = 5.0
"""The seconds that must pass for each CPU second beyond that: a job has a fifth of the operator."""
LONGEST_PAUSE_SECONDS = 30.0


@dataclass
class Cost:
    """The decisions about one job, or about several: their number and CPU seconds."""

    count: int = 0
    seconds: float = 0.0

    def add(self, count: int, seconds: float) -> None:
        """Add these decisions."""
        self.count += count
        self.seconds += seconds


@dataclass
class DecisionCosts:
    """Measures decisions.

    Attributes:
        clock: a monotonic one, in seconds.
        cpu_clock: the CPU seconds of this thread.
        by_job: costs of at most `MAX_SERIES` jobs.
        of_others: costs of the other jobs together.
    """

    clock: Callable[[], float] = time.monotonic
    cpu_clock: Callable[[], float] = time.thread_time
    by_job: dict[JobKey, Cost] = field(default_factory=dict)
    of_others: Cost = field(default_factory=Cost)
    _paid_at: dict[JobKey, float] = field(default_factory=dict)

    @contextmanager
    def measured(self, key: JobKey) -> Iterator[None]:
        """Count what runs inside the `with` as a decision about this job."""
        begun = self.cpu_clock()
        try:
            yield
        finally:
            self._count(key, self.cpu_clock() - begun)

    def pause(self, key: JobKey) -> float:
        """Return the seconds after which the next decision about this job may be made."""
        return max(0.0, self._paid_at.get(key, -math.inf) - self.clock())

    def forget(self, key: JobKey) -> None:
        """Forget a job that no longer exists."""
        self.by_job.pop(key, None)
        self._paid_at.pop(key, None)

    def forget_all(self, has: Callable[[str], bool]) -> None:
        """Forget the jobs of these namespaces, which another process leads."""
        for key in {*self.by_job, *self._paid_at}:
            if has(key.namespace):
                self.forget(key)

    def _count(self, key: JobKey, seconds: float) -> None:
        now = self.clock()
        # A job that has not paid for long has as much free as one that has never made a decision.
        begun = max(self._paid_at.get(key, -math.inf), now - PAUSE_PER_SECOND * FREE_SECONDS)
        self._paid_at[key] = min(begun + PAUSE_PER_SECOND * seconds, now + LONGEST_PAUSE_SECONDS)
        cost = self.by_job.get(key)
        if cost is None:
            cost = self._new_series(key, seconds)
        cost.add(1, seconds)

    def _new_series(self, key: JobKey, seconds: float) -> Cost:
        """Return where to count a decision of a job without a series.

        When there are as many series as there may be, a job gets one in place of another that has
        used less in all its decisions than this one in its last: cheap jobs hide no expensive one.
        """
        if len(self.by_job) >= MAX_SERIES:
            cheapest = min(self.by_job, key=lambda each: self.by_job[each].seconds)
            if seconds <= self.by_job[cheapest].seconds:
                return self.of_others
            replaced = self.by_job.pop(cheapest)
            self.of_others.add(replaced.count, replaced.seconds)
        return self.by_job.setdefault(key, Cost())
