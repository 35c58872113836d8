"""Ends the training processes: by a request, then SIGTERM, then SIGKILL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from elasticjob_api import drain_times

from elasticjob_agent.events import EndProcess
from elasticjob_agent.process import TrainingProcesses
from elasticjob_agent.training_socket import TrainingSocket


async def end(
    processes: TrainingProcesses,
    action: EndProcess,
    *,
    socket: TrainingSocket,
    leaves_by_itself: Callable[[], bool],
    sigterm_delay_seconds: float,
) -> None:
    """End the processes; the caller cancels this when all have exited.

    Args:
        processes: the running processes.
        action: the times.
        socket: the socket by which they are asked to stop.
        leaves_by_itself: whether the processes notice that their host leaves, and exit.
        sigterm_delay_seconds: the time without SIGTERM for processes that do not listen for stops.
    """
    if action.kill_after > 0:
        begun = time.monotonic()
        socket.request_stop()
        if not socket.listens_for_stop:
            # Meanwhile it may leave at its next commit, write a snapshot, or begin to listen.
            delay = sigterm_delay_seconds
            if action.by_node and leaves_by_itself():
                delay = drain_times.own_end(action.terminate_after)
            await asyncio.sleep(min(delay, action.terminate_after))
        if socket.listens_for_stop:
            await asyncio.sleep(begun + action.terminate_after - time.monotonic())
        processes.terminate()
        await asyncio.sleep(begun + action.kill_after - time.monotonic())
    processes.kill()
