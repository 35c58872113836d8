"""Who may call what.

The job's token all, the token that follows from it what reads, and everybody the health.
"""

from __future__ import annotations

import hmac
from enum import Enum

from elasticjob_api.query_token import query_token
from elasticjob_api.v1 import discovery_pb2, job_pb2, shards_pb2

_JOB = job_pb2.DESCRIPTOR.services_by_name["JobService"]
_DISCOVERY = discovery_pb2.DESCRIPTOR.services_by_name["DiscoveryService"]
_SHARDS = shards_pb2.DESCRIPTOR.services_by_name["ShardService"]

OPEN_TO_ALL = frozenset({"/grpc.health.v1.Health/Check"})
"""What needs no token: whether the master lives is no secret. To watch it is not free, so that
wants one.
"""
READING = frozenset(
    {
        *(f"/{_JOB.full_name}/{method.name}" for method in _JOB.methods),
        *(f"/{_DISCOVERY.full_name}/{method.name}" for method in _DISCOVERY.methods),
        f"/{_SHARDS.full_name}/GetLedger",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    }
)
"""What the token that reads may call: nothing here joins the job, changes anything, or waits beyond
a limit.
"""


class Access(Enum):
    """What a caller may do."""

    NONE = "none"
    READ = "read"
    ALL = "all"


class Tokens:
    """The tokens of one job."""

    def __init__(self, token: str | None) -> None:
        """Take the job's token; None: everybody may do everything, as with `--insecure`."""
        self._all = None if token is None else f"Bearer {token}".encode()
        self._read = b"" if token is None else f"Bearer {query_token(token)}".encode()

    def access(self, shown: str | bytes | None) -> Access:
        """Return what a caller's `authorization` permits; compared in constant time."""
        if self._all is None:
            return Access.ALL
        given = shown.encode() if isinstance(shown, str) else shown or b""
        if hmac.compare_digest(given, self._all):
            return Access.ALL
        return Access.READ if hmac.compare_digest(given, self._read) else Access.NONE
