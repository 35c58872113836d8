"""The limits and defaults that training process, agent, master and API types share.

This module needs only the standard library.
"""

from __future__ import annotations

MAX_METRICS = 64
"""The number of metrics in a step report."""
MAX_METRIC_NAME_CHARACTERS = 64
MAX_STEP = 2**53
"""The highest step number, and number of steps, in a step report. A double cannot represent all
larger ones.
"""
MAX_LEASED_SHARDS = 10_000
"""Shards of a data set that a process may request at once, and have leased."""
MAX_SHARD_MESSAGE_CHARACTERS = 500
"""Stored characters of the reason for which a shard has failed."""
MAX_CHECKPOINT_PARTS = 1024
"""Parts of a checkpoint in memory: one of each process."""
MAX_KEYS_PER_REQUEST = 1024
"""Keys in one request for values."""
MASTER_FENCE_SECONDS = 10
"""The time after its last write of the state in which a master may start a world. Later, another
master may have claimed the job.
"""
LEAST_MASTER_FORCE_DELETE_SECONDS = 30
"""The least time after which a master that does not end is replaced: its messages have arrived."""
MAX_ROLES = 32
"""Roles of a job. The API server's limit for the cost of CEL rules would allow twice as many."""
MAX_ROLE_STATUSES = 4 * MAX_ROLES
"""Roles in a status: those of the spec, and removed ones whose last pods are ending."""
MAX_SLOTS = 256
"""Training processes of one member."""
MAX_INDEX = 100_000
"""The highest index of a member."""
MAX_INDICES = 20_000
"""Members of a role in a status: twice a role's limit, for a plan that replaces all members."""
LISTED_MEMBERS = 1_000
"""Members of a world up to which each of them is sent the whole list at the start. It would be a
gigabyte for the members of a larger one together, and most programs do not read it.
"""
MAX_RESTARTS = 10_000
"""Bound of the limits of counted restarts and of restarts in a pod."""
MAX_COUNTER = 1_000_000_000
"""The greatest value of a counter in a status, such as of restarts."""
MAX_GENERATION = 2**53
"""The highest generation in a status. A double cannot represent all larger ones."""
MAX_MESSAGE_CHARACTERS = 32_768
"""Characters of a message in a status or a condition; Kubernetes has this limit for conditions."""
