"""The times after which a process that does not end by itself is made to, in their order.

A member leaves, or its world ends: its program may save, its agent sends SIGTERM and then SIGKILL,
the operator deletes the pod, and the master counts a silent member as lost. Each of them leaves
those before it the time to finish. All times are derived from `drainSeconds` here, and count from
the request, as parts of it:

             own end   SIGTERM   SIGKILL   deleted        lost
    leaves   1/2       0.72      0.9       1, then 5 s    2, then a margin
    stops    1/2       1         2         never          2, then a margin

This module needs only the standard library.
"""

from __future__ import annotations

DEFAULT_DRAIN_SECONDS = 30
"""Seconds in which a leaving member must finish its step and save its state."""
EXIT_SECONDS = 5
"""Seconds in which an agent reports and exits after its drain time, before the kubelet kills it."""


def own_end(seconds: float) -> float:
    """Return how long a process may take to end or to commit by itself, before others act.

    The other half is left for a request, a checkpoint, or the process that must start again.
    """
    return seconds / 2


def agent_seconds(drain_seconds: float) -> float:
    """Return the seconds that the master gives an agent to end the process of a leaving member.

    It is a little less than the operator waits, so that the agent ends the process and not the
    kubelet, and the master still learns of a confirmed stop.
    """
    return 0.9 * drain_seconds


def sigterm_of_leaving(seconds: float) -> float:
    """Return when the agent sends SIGTERM to a process that must have exited within `seconds`.

    A program that is asked by `elasticjob` saves until then. One that only knows SIGTERM needs the
    rest of the time.
    """
    return 0.8 * seconds


def sigkill_of_stop(grace: float) -> float:
    """Return when the agent kills a process that was asked to stop and got SIGTERM after `grace`.

    Its pod stays for the next world, so nothing else ends it, and it may save twice as long.
    """
    return 2 * grace


def lost(grace: float, margin: float) -> float:
    """Return when the master counts a member as lost that has not reported its process' end."""
    return sigkill_of_stop(grace) + margin


def pod_grace_seconds(drain_seconds: int) -> int:
    """Return the least `terminationGracePeriodSeconds`: the node's SIGTERM may come first."""
    return drain_seconds + EXIT_SECONDS
