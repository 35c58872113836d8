"""Asks the master whether this process may still make a checkpoint final.

A process that is cut off for a while may be replaced. The others then continue from the last
checkpoint, and a checkpoint that this process writes late would undo their work.
"""

from __future__ import annotations

import concurrent.futures
import logging
import time

from elasticjob._agent_connection import AgentError, agent_connection

log = logging.getLogger("elasticjob")


def may_commit(timeout: float = 10.0) -> bool:
    """Return whether this process still belongs to the world that trains; True without a job.

    Call it immediately before the step that makes a checkpoint final, such as the rename of a
    complete file. If it returns False, keep the last checkpoint; the reason is logged.

    Args:
        timeout: seconds to wait for the master; without its answer nothing may be written. Keep it
            below `spec.health.lostSeconds`, or the answer may be out of date when it arrives.
    """
    agent = agent_connection()
    if agent is None:
        return True
    asked_at = time.monotonic()
    try:
        why_not = agent.call("may_commit", timeout=0.9 * timeout).result(timeout).get("why_not")
    except concurrent.futures.TimeoutError:
        why_not = f"the agent has not answered within {timeout:g} s"
    except AgentError as error:
        why_not = str(error)
    if why_not is None and time.monotonic() - asked_at > timeout:
        # this process was suspended; the answer may be out of date
        why_not = f"the answer came after more than {timeout:g} s"
    if why_not is not None:
        log.warning("this process may not write a checkpoint: %s", why_not)
    return why_not is None
