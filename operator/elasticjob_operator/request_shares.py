"""Bounds the concurrent requests of each job, and lets small jobs pass large ones.

A new job needs several requests one after the other, and each of them waits in the API server
beside those of other jobs. So a job with thousands of pods to change makes only a few requests at a
time while a job with few changes is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

MAX_CONCURRENT_CHANGES = 32
"""Concurrent requests of one job, and the most changes with which a job counts as small. The
session has more connections, so a large job leaves some to the others.
"""
MAX_BESIDE_SMALL_JOBS = 4
"""Concurrent requests of all large jobs together while a small one is served."""


class RequestShares:
    """Counts the jobs that are served, and gives each request for a large one its turn."""

    def __init__(self) -> None:
        self._small_jobs = 0
        self._beside_small_jobs = asyncio.Semaphore(MAX_BESIDE_SMALL_JOBS)

    @contextmanager
    def serving(self, changes: int) -> Generator[None]:
        """Serve a job with this number of changes; large jobs yield to small ones meanwhile."""
        is_small = 0 < changes <= MAX_CONCURRENT_CHANGES
        self._small_jobs += is_small
        try:
            yield
        finally:
            self._small_jobs -= is_small

    @asynccontextmanager
    async def turn(self, changes: int) -> AsyncGenerator[None]:
        """Wait until a request for a job with this number of changes may be sent."""
        if changes <= MAX_CONCURRENT_CHANGES or not self._small_jobs:
            yield
            return
        async with self._beside_small_jobs:
            yield
