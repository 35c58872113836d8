"""The scripts of ScalePlans that this agent is told to run.

Each once, in a session of its own, within its time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping

from elasticjob_api.v1 import agent_pb2 as pb

from elasticjob_agent.process import ProcessSupervisor
from elasticjob_agent.training_process import TrainingProcess

MOST_REMEMBERED = 1000
"""Ends that are remembered: a master repeats only what an unfinished plan wants, of which there is
one at a time.
"""
PREFIX = "[script] "
OUTPUT_SECONDS = 0.5
_PRINTING_TO_STDERR = ("sh", "-c", 'exec "$@" >&2', "sh")
"""So that what it prints is in order, and the last words have both."""


class Scripts:
    """Runs scripts beside the training process, and remembers how they have ended."""

    def __init__(
        self,
        supervisor: ProcessSupervisor,
        container: Mapping[str, str],
        send: Callable[[pb.AgentMessage], None],
    ) -> None:
        """Start scripts by a supervisor in this environment, and report their ends by `send`."""
        self._supervisor = supervisor
        self._container = container
        self._send = send
        self._ends: dict[str, pb.ScriptResult | None] = {}

    async def run(self, request: pb.RunScript) -> None:
        """Run a script, or report again how it has ended; one that runs already is left alone.

        Cancelled, it kills the script.
        """
        if request.id not in self._ends:
            self._ends[request.id] = None
            if len(self._ends) > MOST_REMEMBERED:
                del self._ends[next(iter(self._ends))]
            self._ends[request.id] = await self._run(request)
        if (result := self._ends[request.id]) is not None:
            self._send(pb.AgentMessage(script=result))

    async def _run(self, request: pb.RunScript) -> pb.ScriptResult:
        ended = asyncio.Event()
        process = TrainingProcess(PREFIX, lambda _process: ended.set())
        command = [*_PRINTING_TO_STDERR, "sh", "-c", request.script, "sh", request.pods]
        self._supervisor.start_other(process, command, {**self._container, **request.environment})
        late = ""
        try:
            async with asyncio.timeout(
                request.timeout_seconds if math.isfinite(request.timeout_seconds) else 0.0
            ):
                await ended.wait()
        except TimeoutError:
            late = f"killed, as it has not ended within {request.timeout_seconds:.0f} s\n"
            process.kill_group()
            await ended.wait()
        finally:
            process.kill_group()  # with what it has left running
        await asyncio.to_thread(process.wait_for_output, OUTPUT_SECONDS)
        words = "\n".join(line.removeprefix(PREFIX) for line in process.last_words.split("\n"))
        return pb.ScriptResult(
            id=request.id, exit_code=process.code, message=f"{late}{words}".strip()
        )
