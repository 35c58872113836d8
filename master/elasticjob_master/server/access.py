"""Which calls a token permits.

The job's token permits all calls. The query token, which is derived from it, permits calls that
only read. Without a token a caller may only check the master's health.
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
"""Calls that need no token. Health/Watch needs one, because each watch occupies memory."""
READING = frozenset(
    {
        *(f"/{_JOB.full_name}/{method.name}" for method in _JOB.methods),
        *(f"/{_DISCOVERY.full_name}/{method.name}" for method in _DISCOVERY.methods),
        f"/{_SHARDS.full_name}/GetLedger",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    }
)
"""Calls that the query token permits. None of them joins the job, changes it, or waits without a
limit.
"""


class Access(Enum):
    """What a caller is permitted."""

    NONE = "none"
    READ = "read"
    ALL = "all"


class Tokens:
    """The tokens of one job."""

    def __init__(self, token: str | None) -> None:
        """Take the job's token. None permits every call to everyone, as with `--insecure`."""
        self._all = None if token is None else f"Bearer {token}".encode()
        self._read = b"" if token is None else f"Bearer {query_token(token)}".encode()

    def access(self, shown: str | bytes | None) -> Access:
        """Return what a caller's `authorization` permits; it is compared in constant time."""
        if self._all is None:
            return Access.ALL
        given = shown or b""
        if isinstance(given, str):
            given = given.encode()
        if hmac.compare_digest(given, self._all):
            return Access.ALL
        if hmac.compare_digest(given, self._read):
            return Access.READ
        return Access.NONE
