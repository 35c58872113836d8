"""Runs the scripts of ScalePlans that the master sends: each once, within its time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping

from elasticjob_api.v1 import agent_pb2 as pb

from elasticjob_agent.process import ProcessSupervisor
from elasticjob_agent.training_process import TrainingProcess

MOST_REMEMBERED = 1000
"""Results that are remembered. A master repeats only the script of the one unfinished plan."""
PREFIX = "[script] "
OUTPUT_SECONDS = 0.5
_PRINTING_TO_STDERR = ("sh", "-c", 'exec "$@" >&2', "sh")
"""Keeps both outputs of a script in order, and puts both into the last words."""


class Scripts:
    """Runs scripts beside the training process, and remembers their results."""

    def __init__(
        self,
        supervisor: ProcessSupervisor,
        container: Mapping[str, str],
        send: Callable[[pb.AgentMessage], None],
    ) -> None:
        """Start scripts by a supervisor in this environment, and send their results."""
        self._supervisor = supervisor
        self._container = container
        self._send = send
        self._results: dict[str, pb.ScriptResult | None] = {}

    async def run(self, request: pb.RunScript) -> None:
        """Run a script, or send its known result again; cancelling kills the script.

        A script that is running is not started again.
        """
        if request.id not in self._results:
            self._results[request.id] = None
            if len(self._results) > MOST_REMEMBERED:
                del self._results[next(iter(self._results))]
            self._results[request.id] = await self._run(request)
        result = self._results[request.id]
        if result is not None:
            self._send(pb.AgentMessage(script=result))

    async def _run(self, request: pb.RunScript) -> pb.ScriptResult:
        ended = asyncio.Event()
        process = TrainingProcess(PREFIX, lambda _process: ended.set())
        command = [*_PRINTING_TO_STDERR, "sh", "-c", request.script, "sh", request.pods]
        self._supervisor.start_other(process, command, {**self._container, **request.environment})
        late = ""
        timeout = request.timeout_seconds
        if not math.isfinite(timeout):
            timeout = 0.0
        try:
            async with asyncio.timeout(timeout):
                await ended.wait()
        except TimeoutError:
            late = f"killed, as it has not ended within {request.timeout_seconds:.0f} s\n"
            process.kill_group()
            await ended.wait()
        finally:
            process.kill_group()  # also processes that it has left
        await asyncio.to_thread(process.wait_for_output, OUTPUT_SECONDS)
        code, text = process.failure()
        words = "\n".join(line.removeprefix(PREFIX) for line in text.split("\n"))
        return pb.ScriptResult(id=request.id, exit_code=code, message=f"{late}{words}".strip())
