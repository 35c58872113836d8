"""`spec.health` of an ElasticJob: when a member counts as lost, stalled or slow."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from elasticjob_api.meta import Object

_Seconds = Annotated[int, Meta(ge=1, le=86_400)]
OnStall = Literal["Report", "Restart"]


class NodeCheck(Object, frozen=True):
    """A check of each new member's node before a training process runs on it."""

    enabled: Annotated[bool, Meta(description="Whether nodes are checked.")] = False
    command: Annotated[
        list[Annotated[str, Meta(max_length=4096)]],
        Meta(
            description="A command in the training container, such as a small GPU job. An exit "
            "code other than 0 means that the node is unfit.",
            max_length=64,
        ),
    ] = []
    timeout_seconds: Annotated[
        _Seconds,
        Meta(description="Seconds for which a check may run. Then the node counts as unfit."),
    ] = 120


class Health(Object, frozen=True):
    """The limits by which the master recognises lost members, stalls and stragglers."""

    lost_seconds: Annotated[
        Annotated[int, Meta(ge=5, le=3600)],
        Meta(
            description="Seconds without a connection to a member's agent after which the member "
            "counts as lost, and the others continue without it. If the connection exists but the "
            "agent is silent, the time is three times as long. After a third of the time the "
            "member is shown as suspected."
        ),
    ] = 30
    stall_factor: Annotated[
        Annotated[float, Meta(ge=2, le=1000)],
        Meta(
            description="Training counts as stalled if no step is finished for this multiple of "
            "the usual interval between steps, while members are running."
        ),
    ] = 10
    stall_seconds: Annotated[
        _Seconds,
        Meta(
            description="Least number of seconds without a step before training counts as stalled."
        ),
    ] = 300
    on_stall: Annotated[
        OnStall,
        Meta(
            description="Report: the job gets the condition TrainingStalled and an event. "
            "Restart: all training processes also restart from their checkpoint."
        ),
    ] = "Report"
    straggler_factor: Annotated[
        Annotated[float, Meta(gt=1, le=100)],
        Meta(
            description="A member counts as a straggler if its own time for a step is above this "
            "multiple of its role's median."
        ),
    ] = 2
    straggler_seconds: Annotated[
        _Seconds, Meta(description="Seconds for which this must last.")
    ] = 60
    on_straggler: Annotated[
        Literal["Report", "Replace"],
        Meta(
            description="Report: the job gets the condition Stragglers and an event. Replace: "
            "also, one straggler at a time is replaced by a new pod that avoids its node, if this "
            "saves enough training time."
        ),
    ] = "Report"
    max_straggler_replacements: Annotated[
        Annotated[int, Meta(ge=1, le=100)],
        Meta(
            description="For onStraggler Replace: greatest number of stragglers that are replaced "
            "during the job."
        ),
    ] = 3
    node_check: Annotated[NodeCheck, Meta(description="Check of nodes before training.")] = (
        NodeCheck()
    )
