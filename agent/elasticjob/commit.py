"""Whether this process may still make a checkpoint final.

A process that is cut off for a while may be replaced: the others go back to the last checkpoint and
train on. What it then writes would undo their work.
"""

from __future__ import annotations

import concurrent.futures
import logging
import time

from elasticjob._agent_connection import AgentError, agent_connection

log = logging.getLogger("elasticjob")


def may_commit(timeout: float = 10.0) -> bool:
    """Return whether this process still belongs to the world that trains.

    Without a job it always does. To be called immediately before the step that makes a checkpoint
    final, such as the rename of a complete file: if it returns False, leave the last checkpoint as
    it is. The reason is logged.

    Args:
        timeout: seconds to wait for the master; without its answer nothing may be written. Less than
            `spec.health.lostSeconds`, or the answer may be out of date when it comes.
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
        # this process stood still; it may be out of date
        why_not = f"the answer came after more than {timeout:g} s"
    if why_not is not None:
        log.warning("this process may not write a checkpoint: %s", why_not)
    return why_not is None
