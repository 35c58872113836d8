"""Limits and defaults that training process, agent, master and API types share.

Standard library only.
"""

from __future__ import annotations

MAX_METRICS = 64
"""Metrics in a step report."""
MAX_METRIC_NAME_CHARACTERS = 64
MAX_STEP = 2**53
"""The highest step number, and number of steps, in a step report: larger ones are not exact as a
double.
"""
MAX_LEASED_SHARDS = 10_000
"""Shards of a data set that a process may ask for in one request, and lease at a time."""
MAX_SHARD_MESSAGE_CHARACTERS = 500
"""Characters of the reason for which a shard has failed that are kept."""
MAX_KEYS_PER_REQUEST = 1024
"""Keys whose values can be read in one request."""
MASTER_FENCE_SECONDS = 10
"""How long after its last write of the state a master may start a world: by then a later one may
have claimed it.
"""
LEAST_MASTER_FORCE_DELETE_SECONDS = 30
"""The least time after which a master that does not end is given up: what it sends is on its way
for no longer.
"""
DEFAULT_DRAIN_SECONDS = 30
"""Seconds a leaving member has to finish its step and to save its state."""
MAX_ROLES = 32
"""Roles of a job. The rules of the definitions, whose cost the API server bounds, would allow twice
as many.
"""
MAX_ROLE_STATUSES = 4 * MAX_ROLES
"""Roles of which a status tells: those of the spec, and removed ones whose last pods end."""
MAX_SLOTS = 256
"""Training processes of one member."""
MAX_INDEX = 100_000
"""The highest index of a member."""
MAX_INDICES = 20_000
"""Members of a role that a status lists at most: twice what a role may have, for a plan that
replaces all of them.
"""
MAX_COUNTER = 1_000_000_000
"""The highest number that a counter of a status has, such as of restarts."""
MAX_GENERATION = 2**53
"""The highest generation that a status names: the API server counts from 1; larger ones are not
exact as a double.
"""
MAX_MESSAGE_CHARACTERS = 32_768
"""Characters of a message in a status or a condition: as many as Kubernetes allows in a condition.
"""
