"""The master of a run, as a process of this machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from elasticjob_api import names

from elasticjob_cli.run.environment import Run, master_environment

_END_SECONDS = 5.0
_POLL_SECONDS = 0.02


class MasterProcess:
    """Starts, resizes and ends the master; it reads the number of workers from its input."""

    def __init__(self, run: Run, folder: Path) -> None:
        """Prepare; the master keeps its log and its state in the folder of the run."""
        self._run = run
        self._log = folder / "master.log"
        self._state = folder / "master-state"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def log(self) -> str:
        """The output of the master so far."""
        return self._log.read_text(errors="replace")

    async def start(self, size: int) -> None:
        """Start the master, also again after its end, with a number of workers."""
        run = self._run
        options = (
            "--standalone",
            "--sizes-from-stdin",
            "--failure-ends",
            f"--framework={run.framework}",
            f"--min={run.least}",
            f"--workers={size}",
            f"--address={run.master_address}",
            f"--state-file={self._state}",
        )
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "elasticjob_master.main", *options),
                env=master_environment(run, os.environ),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.set_size(size)

    def set_size(self, size: int) -> None:
        """Send the number of workers to a running master."""
        process = self._process
        if process is not None and process.stdin is not None and process.returncode is None:
            process.stdin.write(f"{size}\n".encode())

    async def wait_until_it_listens(self) -> None:
        """Wait until agents can connect to the master."""
        while True:
            try:
                _, writer = await asyncio.open_connection(self._run.master_address, names.GRPC_PORT)
            except OSError:
                await asyncio.sleep(_POLL_SECONDS)
            else:
                writer.close()
                return

    async def wait(self) -> int:
        """Wait until the master has ended; return its exit code."""
        assert self._process is not None
        return await self._process.wait()

    async def end(self) -> None:
        """End the master by the end of its input, or kill it."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _END_SECONDS)
        except TimeoutError:
            process.kill()
