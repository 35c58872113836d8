"""What this process knows of one job's infrastructure.

The objects that it has found or made, and in which version.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticjob_api import names
from elasticjob_kube.resources import SECRETS, Resource


@dataclass(frozen=True)
class ObjectVersion:
    """An object as last found or made.

    `generation` is 0 for the kinds that have none; `created` is a time.
    """

    uid: str
    version: int
    generation: int
    created: str = ""


@dataclass
class InfrastructureRecord:
    """The infrastructure of one job.

    Attributes:
        ensured_for: the inputs of the manifests for which all objects were found or made; None when that is not so.
        objects: those objects, by kind and name.
        secret_made_anew: when the job's Secret was made with other contents than it had before; empty: never.
        secrets: contents of the Secrets by name, base64, to restore a lost one as it was.
        changes: how often somebody else has changed or deleted an object.
    """

    ensured_for: Hashable = None
    objects: dict[tuple[Resource, str], ObjectVersion] = field(default_factory=dict)
    secrets: dict[str, Mapping[str, str]] = field(default_factory=dict)
    changes: int = 0
    secret_made_anew: str = ""

    def observe(self, resource: Resource, found: Mapping[str, Any]) -> None:
        """Keep an object as it was found or made."""
        metadata = found["metadata"]
        self.objects[resource, metadata["name"]] = ObjectVersion(
            metadata["uid"],
            int(metadata["resourceVersion"]),
            metadata.get("generation", 0),
            metadata.get("creationTimestamp") or "",
        )
        if resource == SECRETS:
            self.secrets[metadata["name"]] = found.get("data") or {}
            if names.ANNOTATION_MADE_ANEW in (metadata.get("annotations") or {}):
                self.secret_made_anew = metadata.get("creationTimestamp") or ""

    def invalidate(self) -> None:
        """Note that somebody else has changed or deleted an object.

        All of them have to be looked at again.
        """
        self.ensured_for = None
        self.changes += 1
