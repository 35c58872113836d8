"""TensorFlow: TF_CONFIG with the addresses of all members.

The evaluator is not part of the cluster that it evaluates. A chief connects to the parameter
servers and sends them the workers of its world, so they continue when workers join or leave.
Without a chief, each process knows only the cluster of its start: a server that continued would
refuse new workers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from elasticjob_api.addresses import host_port
from elasticjob_api.frameworks.peer import Environment, Framework, Peer, meeting_port, of_role

FIRST_PORTS = {"chief": 2222, "ps": 2300, "worker": 12300}
"""A server listens on every address. So each member has its own port, in case all members share one
network stack.
"""
ROLES = ("chief", "worker", "ps", "evaluator")


def environment(world: Sequence[Peer]) -> Environment:
    """Return TF_CONFIG; a task's index is its position in its role, to have no gaps."""
    members = {role: of_role(world, role) for role in ROLES}
    # Parameter servers outlive worlds, so their ports depend on the chief's address, which does not
    # change.
    anchor = next(iter([*members["chief"], *members["ps"], *world]))

    def address(peer: Peer) -> str:
        usual = FIRST_PORTS[peer.role]
        own = peer.port and peer.port + usual - FIRST_PORTS["chief"]
        port = meeting_port(anchor.address, usual, own)
        return host_port(peer.address, port + peer.index * peer.slots + peer.local_rank)

    listening = [role for role in FIRST_PORTS if members[role]]
    addresses = {role: [address(peer) for peer in members[role]] for role in listening}
    cluster = json.dumps(addresses)  # once, as it may have a thousand members
    position = {
        (peer.name, peer.local_rank): index
        for peers in members.values()
        for index, peer in enumerate(peers)
    }

    def render(rank: int) -> dict[str, str]:
        me = world[rank]
        task = json.dumps({"type": me.role, "index": position[me.name, me.local_rank]})
        return {"TF_CONFIG": f'{{"cluster": {cluster}, "task": {task}}}'}

    return render


TENSORFLOW = Framework(
    roles=ROLES,
    environment=environment,
    required=(("chief", "worker"),),
    single_roles=("chief",),
    ports=tuple(FIRST_PORTS.values()),
    deciding_role="chief",
    # The chief saves the variables, which parameter servers hold and workers may change.
    stop_order=("chief", "worker", "ps"),
    kept_roles=frozenset({"ps", "evaluator"}),
)
TENSORFLOW_WITHOUT_CHIEF = replace(TENSORFLOW, kept_roles=frozenset({"evaluator"}))
