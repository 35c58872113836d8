"""Horovod: the elastic driver in the launcher finds hosts by discovery; workers adapt without being restarted."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.frameworks.peer import Environment, Framework, Peer


def environment(world: Sequence[Peer]) -> Environment:
    """Return the host name that Horovod's driver knows this member by."""
    return lambda rank: {"HOROVOD_HOSTNAME": world[rank].name, "HOROVOD_ELASTIC": "1"}


HOROVOD = Framework(
    roles=("launcher", "worker"),
    environment=environment,
    deciding_role="launcher",
    in_process_elastic=True,
    process_per_gpu=True,
    launcher_role="launcher",
)
