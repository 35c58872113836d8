"""Calls a controller on every tick: for decisions, for the monitors, and to store the progress."""

from __future__ import annotations

import asyncio
import logging

from elasticjob_master.controller import Controller

log = logging.getLogger(__name__)

TICK_SECONDS = 0.1
_SUSPENDED_SECONDS = 2.0
_STORE_SECONDS = 5.0
"""The greatest age of the stored progress. Everything else is stored when it changes."""


async def run(controller: Controller) -> None:
    """Tick while the master runs."""
    last = stored_at = controller.now()
    stored = _progress(controller)
    while True:
        await asyncio.sleep(controller.decisions.pause(TICK_SECONDS))
        now = controller.now()
        if now - last > _SUSPENDED_SECONDS:
            log.warning(
                "the master was suspended for %.1f s; no member counts as silent in that time",
                now - last,
            )
            controller.suspended(now - last)
            await asyncio.sleep(0)  # handle the messages that have arrived first
        last = now
        controller.decisions.decide_if_due()
        controller.tick_monitors(now)
        progress = _progress(controller)
        if progress != stored and now - stored_at >= _STORE_SECONDS:
            stored = progress
            stored_at = now
            controller.changed()


def _progress(controller: Controller) -> tuple[float | None, int]:
    """Return values that change with every step report and with every sample."""
    return controller.progress.reported_at, controller.history.number
