"""Which process of its world this one is, as its environment says."""

from __future__ import annotations

import os

from elasticjob_api import names


def rank() -> int:
    """Return this process' rank among those of all pods."""
    return _number(names.ENV_RANK, "RANK", 0)


def size() -> int:
    """Return the number of processes of all pods."""
    return _number(names.ENV_WORLD_SIZE, "WORLD_SIZE", 1)


def local_rank() -> int:
    """Return this process' rank among those of its pod."""
    return _number(names.ENV_LOCAL_RANK, "LOCAL_RANK", 0)


def local_size() -> int:
    """Return the number of processes of its pod."""
    return _number(names.ENV_LOCAL_SIZE, "LOCAL_WORLD_SIZE", 1)


def _number(agents: str, launchers: str, alone: int) -> int:
    """Return a number that the agent has set, or a launcher that the agent has started, such as torchrun."""
    if agents in os.environ:
        return int(os.environ[agents])
    return int(os.environ.get(launchers, alone)) if names.ENV_SOCKET in os.environ else alone
