"""TensorFlow: TF_CONFIG with the addresses of all members. The evaluator is not part of the cluster it evaluates."""

from __future__ import annotations

import json
from collections.abc import Sequence

from elasticjob_api.frameworks.peer import Framework, Peer, of_role

PORT = 2222
ROLES = ("chief", "worker", "ps", "evaluator")


def environment(world: Sequence[Peer], rank: int) -> dict[str, str]:
    """Return TF_CONFIG. A task's index is its position in its role, since TensorFlow wants them without gaps."""
    cluster = {role: of_role(world, role) for role in ROLES}
    me = world[rank]
    task = {"type": me.role, "index": cluster[me.role].index(me)}
    addresses = {
        role: [f"{peer.address}:{PORT}" for peer in peers]
        for role, peers in cluster.items()
        if peers and role != "evaluator"
    }
    return {"TF_CONFIG": json.dumps({"cluster": addresses, "task": task})}


TENSORFLOW = Framework(roles=ROLES, environment=environment, deciding_role="chief")
