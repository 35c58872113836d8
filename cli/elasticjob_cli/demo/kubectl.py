"""kubectl as a user runs it.

Everything that the demo changes in the cluster, it changes with kubectl.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from elasticjob_cli.demo.observer import NotObserved
from elasticjob_cli.demo.timeline import Timeline


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl against one cluster and shows each command with its answer."""

    program: Path
    kubeconfig: Path
    timeline: Timeline

    async def __call__(self, *arguments: str) -> None:
        """Run a command.

        Raises:
            NotObserved: kubectl ended with another exit code than 0.
        """
        process = await asyncio.create_subprocess_exec(
            self.program,
            *arguments,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        shown = " ".join(f"'{argument}'" if "{" in argument else argument for argument in arguments)
        self.timeline.command(f"kubectl {shown}", output.decode(errors="replace"))
        if process.returncode:
            raise NotObserved(f"kubectl {shown}: exit code {process.returncode}")
