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

        write("model.new")
        if elasticjob.may_commit():
            os.replace("model.new", "model")

    Call it immediately before the step that makes a checkpoint final, such as the rename of a
    complete file. If it returns False, keep the last checkpoint; the reason is logged.

    Args:
        timeout: seconds to wait for the master; without its answer nothing may be written. Keep it
            below `spec.health.lostSeconds`, or the answer may be out of date when it arrives.
    """
    why_not = why_not_commit(timeout)
    if why_not is not None:
        log.warning("this process may not write a checkpoint: %s", why_not)
    return why_not is None


def why_not_commit(timeout: float) -> str | None:
    """Return why this process may not commit now, or None if it may. See `may_commit`."""
    agent = agent_connection()
    if agent is None:
        return None
    asked_at = time.monotonic()
    try:
        answer = agent.call("may_commit", timeout=0.9 * timeout).result(timeout)
    except concurrent.futures.TimeoutError:
        return f"the agent has not answered within {timeout:g} s"
    except AgentError as error:
        return str(error)
    why_not: str | None = answer.get("why_not")
    if why_not is None and time.monotonic() - asked_at > timeout:
        # this process was suspended; the answer may be out of date
        return f"the answer came after more than {timeout:g} s"
    return why_not
