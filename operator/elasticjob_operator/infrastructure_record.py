"""The record of one job's infrastructure: which objects this process has found or created."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticjob_api import names
from elasticjob_kube.resources import SECRETS, SERVICES, Resource


@dataclass(frozen=True)
class ObjectVersion:
    """An object as last found or created.

    `generation` is 0 for kinds without one; `created` is the time of the creation.
    """

    uid: str
    version: int
    generation: int
    created: str = ""


@dataclass
class InfrastructureRecord:
    """The infrastructure of one job.

    Attributes:
        ensured_for: the inputs of the manifests for which all objects exist; None if they must be
            ensured again.
        objects: the objects by kind and name.
        secrets: contents of the Secrets by name, base64, to restore a lost one.
        addresses: the addresses of the Services by name, to restore a lost one: running containers
            have them in their environment.
        changes: the number of times another client has changed or deleted an object.
        secret_made_anew: when the job's Secret was created with new contents; empty for never.
    """

    ensured_for: Hashable = None
    objects: dict[tuple[Resource, str], ObjectVersion] = field(default_factory=dict)
    secrets: dict[str, Mapping[str, str]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    changes: int = 0
    secret_made_anew: str = ""

    def observe(self, resource: Resource, found: Mapping[str, Any]) -> None:
        """Record an object as it was found or created."""
        metadata = found["metadata"]
        self.objects[resource, metadata["name"]] = ObjectVersion(
            metadata["uid"],
            int(metadata["resourceVersion"]),
            metadata.get("generation", 0),
            metadata.get("creationTimestamp") or "",
        )
        if resource == SERVICES and (address := found["spec"].get("clusterIP")):
            self.addresses[metadata["name"]] = address
        if resource == SECRETS:
            self.secrets[metadata["name"]] = found.get("data") or {}
            if names.ANNOTATION_MADE_ANEW in (metadata.get("annotations") or {}):
                self.secret_made_anew = metadata.get("creationTimestamp") or ""

    def invalidate(self) -> None:
        """Record that another client has changed or deleted an object: ensure all of them again."""
        self.ensured_for = None
        self.changes += 1
