"""Runs `elasticjob` as a process, for tests of the command line against a real API server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.warm_process import run_warm

ELASTICJOB = Path(sys.executable).with_name("elasticjob")
SECONDS = 30.0


async def elasticjob(
    *arguments: str, folder: Path | None = None, seconds: float = SECONDS
) -> tuple[int, str, str]:
    """Run a command in a folder to its end; return exit code, output and errors."""
    done = await asyncio.to_thread(
        run_warm, "elasticjob", *arguments, folder=folder, seconds=seconds
    )
    return done.returncode, done.stdout, done.stderr


class Watch:
    """A running command that prints one line of JSON for each answer."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def next(self) -> Any:
        """Return its next answer."""
        assert self._process.stdout is not None
        return json.loads(await asyncio.wait_for(self._process.stdout.readline(), SECONDS))

    async def end(self) -> tuple[int, str]:
        """Wait for its end; return exit code and errors."""
        _, errors = await asyncio.wait_for(self._process.communicate(), SECONDS)
        return self._process.returncode or 0, errors.decode()


@asynccontextmanager
async def watching(*arguments: str) -> AsyncIterator[Watch]:
    """Run a command that prints answers for as long as the block lasts."""
    process = await asyncio.create_subprocess_exec(
        ELASTICJOB,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Watch(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
