"""The pod as the node reads it: typed metadata, and the spec and status as plain JSON.

The spec stays JSON because the node must see the fields it does not know, to refuse them.
"""

from __future__ import annotations

import msgspec
from elasticjob_api import names
from elasticjob_api.meta import Json


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of an object's metadata that the node uses.

    A watch's bookmark has little more than a version.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class Pod(msgspec.Struct, frozen=True):
    """One pod bound to this node."""

    metadata: Metadata
    spec: Json = {}
    status: Json = {}

    @property
    def key(self) -> str:
        """Namespace and name, for log messages."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def containers(self) -> list[Json]:
        """The containers that run together."""
        return self.spec.get("containers") or []

    @property
    def init_containers(self) -> list[Json]:
        """The init containers, without the one that installs the agent."""
        return [one for one in self.spec.get("initContainers") or () if one["name"] != names.AGENT]

    @property
    def restart_policy(self) -> str:
        """Always, OnFailure or Never."""
        policy: str = self.spec.get("restartPolicy", "Always")
        return policy

    @property
    def hostname(self) -> str:
        """The pod's host name."""
        name: str = self.spec.get("hostname") or self.metadata.name[:63].rstrip("-.")
        return name

    @property
    def grace_seconds(self) -> float:
        """The seconds that a container may take to end."""
        of_deletion = self.metadata.deletion_grace_period_seconds
        if of_deletion is not None:
            return float(of_deletion)
        return float(self.spec.get("terminationGracePeriodSeconds", 30))
