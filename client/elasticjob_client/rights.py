"""The rights that the commands need, and the reviews that check them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from elasticjob_api.meta import Json
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    EVENTS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    Resource,
)

REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
Verb = Literal["get", "list", "watch", "create", "patch", "delete"]
_SOCKET: tuple[Verb, ...] = ("get", "create")
"""The verbs of websockets; API servers check either, depending on their version."""


@dataclass(frozen=True)
class Right:
    """A verb on a kind of object."""

    verb: Verb
    resource: Resource
    subresource: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {'/'.join(filter(None, (self.resource.plural, self.subresource)))}"

    def review(self, namespace: str) -> Json:
        """Return the review that checks whether the user has the right in a namespace."""
        attributes = {
            "verb": self.verb,
            "group": self.resource.group,
            "resource": self.resource.plural,
            "subresource": self.subresource,
            "namespace": namespace,
        }
        return {
            "apiVersion": REVIEWS.api_version,
            "kind": REVIEWS.kind,
            "spec": {"resourceAttributes": attributes},
        }


@dataclass(frozen=True)
class Need:
    """The rights that some commands need, and a ClusterRole that has them."""

    commands: str
    rights: Sequence[Right]
    role: str


NEEDS = (
    Need(
        "list, describe, plans, events, wait",
        (
            *(Right(verb, ELASTIC_JOBS) for verb in ("get", "list", "watch")),
            *(Right("list", resource) for resource in (SCALE_PLANS, PODS, EVENTS)),
        ),
        "view",
    ),
    Need("submit", (Right("create", ELASTIC_JOBS), Right("create", CONFIG_MAPS)), "edit"),
    Need(
        "suspend, resume, stop, delete",
        (Right("patch", ELASTIC_JOBS), Right("delete", ELASTIC_JOBS)),
        "edit",
    ),
    Need(
        "scale",
        (
            *(Right("create", resource) for resource in (SCALE_PLANS, SCALE_INS, SCALE_OUTS)),
            *(Right("watch", resource) for resource in (SCALE_PLANS, SCALE_INS, SCALE_OUTS)),
        ),
        "edit",
    ),
    Need("logs", (Right("get", PODS, "log"),), "view"),
    Need("query, history, dashboard", (Right("get", CONFIG_MAPS),), "view"),
    Need("exec", tuple(Right(verb, PODS, "exec") for verb in _SOCKET), "edit"),
    Need(
        "query and dashboard by a forwarded port",
        tuple(Right(verb, PODS, "portforward") for verb in _SOCKET),
        "edit",
    ),
)
