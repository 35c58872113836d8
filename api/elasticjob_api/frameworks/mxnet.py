"""MXNet's parameter servers (ps-lite), which BytePS uses too.

Workers and servers connect to the scheduler. ps-lite reads the role of a process, the address of
the scheduler, and the numbers of workers and servers. BytePS also reads the id of each worker, and
with preferred ranks the id of each server.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.frameworks.peer import Environment, Framework, Peer, meeting_port, of_role

PORT = 9000
NUMBERS = {"worker": "DMLC_WORKER_ID", "server": "DMLC_SERVER_ID"}


def environment(world: Sequence[Peer]) -> Environment:
    """Return the DMLC variables; ids are positions in the role, since they must have no gaps."""
    members = {role: of_role(world, role) for role in ("scheduler", *NUMBERS)}
    # A world without a scheduler cannot train: its processes wait for one at any address.
    scheduler = next(iter(members["scheduler"]), world[0])
    shared = {
        "DMLC_PS_ROOT_URI": scheduler.address,
        "DMLC_PS_ROOT_PORT": str(meeting_port(scheduler.address, PORT, scheduler.port)),
        "DMLC_NUM_SERVER": str(len(members["server"])),
        "DMLC_NUM_WORKER": str(len(members["worker"])),
    }
    number = {
        (peer.name, peer.local_rank): {variable: str(position)}
        for role, variable in NUMBERS.items()
        for position, peer in enumerate(members[role])
    }

    def render(rank: int) -> dict[str, str]:
        me = world[rank]
        return {"DMLC_ROLE": me.role, **shared, **number.get((me.name, me.local_rank), {})}

    return render


MXNET = Framework(
    roles=("scheduler", "server", "worker"),
    environment=environment,
    required=(("scheduler",), ("server",), ("worker",)),
    single_roles=("scheduler",),
    ports=(PORT,),
    deciding_role="worker",
    stop_order=("worker", "server", "scheduler"),
)
