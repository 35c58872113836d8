"""The parts that all custom resources share: metadata, conditions, quantities and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from elasticjob_api import names
from elasticjob_api.limits import MAX_GENERATION, MAX_MESSAGE_CHARACTERS

Json = dict[str, Any]
"""A decoded JSON object."""


@dataclass(frozen=True)
class Rule:
    """A CEL rule of a schema, and the message of the API server for an object that violates it.

    Attributes:
        rule: the condition, in CEL.
        message: the text that the user reads.
        field: the field of the message, such as `.replicas`; empty for the structure itself.
        values: CEL expressions for the %d and %s in the message.
        optional_old_self: makes `oldSelf` an optional that has no value at creation. Without it, a
            rule with `oldSelf` is not evaluated at creation.
    """

    rule: str
    message: str
    field: str = ""
    values: tuple[str, ...] = ()
    optional_old_self: bool = False


@dataclass(frozen=True)
class Column:
    """A column that `kubectl get` prints."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    priority: int = 0


class Object(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The base of every structure in a custom resource: immutable, camelCase, defaults left out."""

    RULES: ClassVar[tuple[Rule, ...]] = ()


def describe_for_threads(*kinds: Any) -> None:
    """Let msgspec describe types, which it does when a type is first used, before threads do.

    Two threads that begin with a type at once would end the process by a segmentation fault
    (msgspec 0.22). Call it in each module whose types are decoded in threads.
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)


class OwnerReference(Object, frozen=True):
    """The fields of an owner reference that are used."""

    uid: str
    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool = False


class ObjectMeta(Object, frozen=True):
    """The fields of an object's metadata that are used."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    def main_container(self, containers: Sequence[str]) -> str:
        """Return which of a pod's containers trains; empty for none.

        It is the one that the operator has named, or the first one of an older operator's pod.
        """
        named = self.annotations.get(names.ANNOTATION_CONTAINER, "")
        return named if named in containers else next(iter(containers), "")


QUANTITY_SCHEMA: Json = {
    "x-kubernetes-int-or-string": True,
    "minimum": 0,
    "maxLength": 32,
    "pattern": r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]{1,3}))?$",
}
"""The schema of a quantity in a CRD, which is an integer or a string."""
Quantity = Annotated[
    int | str,
    Meta(
        description="A Kubernetes quantity, such as 500m, 2 or 4Gi.",
        extra_json_schema=QUANTITY_SCHEMA,
    ),
]

Time = Annotated[
    str,
    Meta(
        description="A time, as RFC 3339 in UTC.",
        # Narrower than the format, so that `parse_time` accepts every stored time.
        pattern=r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$",
        max_length=30,
        extra_json_schema={"format": "date-time"},
    ),
]
Message = Annotated[str, Meta(max_length=MAX_MESSAGE_CHARACTERS)]
Generation = Annotated[int, Meta(ge=0, le=MAX_GENERATION)]
ObjectName = Annotated[str, Meta(max_length=253, pattern="^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")]


class Condition(Object, frozen=True):
    """A standard condition (metav1.Condition)."""

    type: Annotated[str, Meta(description="Type of the condition, in CamelCase.", max_length=316)]
    status: Annotated[
        str,
        Meta(description="True, False or Unknown.", pattern="^(True|False|Unknown)$", max_length=7),
    ]
    reason: Annotated[
        str, Meta(description="Reason in CamelCase, for programs.", max_length=1024)
    ] = ""
    message: Annotated[Message, Meta(description="Reason as text, for readers.")] = ""
    last_transition_time: Annotated[Time, Meta(description="When the status last changed.")] = ""
    observed_generation: Annotated[
        Generation,
        Meta(description="Generation of the object from which the condition was computed."),
    ] = 0
