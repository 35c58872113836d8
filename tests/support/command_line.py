"""Runs `elasticjob` as a process, for tests of the command line against a real API server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ELASTICJOB = Path(sys.executable).with_name("elasticjob")
SECONDS = 30.0


async def elasticjob(
    *arguments: str, folder: Path | None = None, seconds: float = SECONDS
) -> tuple[int, str, str]:
    """Run a command in a folder to its end; return exit code, output and errors."""
    async with _started(*arguments, folder=folder) as process:
        try:
            output, errors = await asyncio.wait_for(process.communicate(), seconds)
        except TimeoutError:
            raise AssertionError(f"{arguments} has not ended within {seconds:g} s") from None
    return process.returncode or 0, output.decode(), errors.decode()


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
    async with _started(*arguments) as process:
        yield Watch(process)


@asynccontextmanager
async def _started(
    *arguments: str, folder: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        ELASTICJOB,
        *arguments,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
