"""`spec.health` of an ElasticJob.

When a member is taken for lost, a job for stalled, a worker for a straggler.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from elasticjob_api.meta import Object

_Seconds = Annotated[int, Meta(ge=1, le=86_400)]


class NodeCheck(Object, frozen=True):
    """A look at each new member's node before a training process runs there."""

    enabled: Annotated[bool, Meta(description="Whether nodes are checked.")] = False
    command: Annotated[
        list[Annotated[str, Meta(max_length=4096)]],
        Meta(
            description="A command in the training container, such as a small GPU job; "
            "an exit code other than 0 means that the node is not fit.",
            max_length=64,
        ),
    ] = []
    timeout_seconds: Annotated[
        _Seconds, Meta(description="Seconds a check may take; then the node is not fit.")
    ] = 120


class Health(Object, frozen=True):
    """What the master takes for healthy."""

    lost_seconds: Annotated[
        Annotated[int, Meta(ge=5, le=3600)],
        Meta(
            description="Seconds without a connection to a member's agent until it is taken for lost and the others go "
            "on without it; three times as long if the connection is there and the agent is silent. From a third of it "
            "on the member is shown as suspected."
        ),
    ] = 30
    stall_factor: Annotated[
        Annotated[float, Meta(ge=2, le=1000)],
        Meta(
            description="Stalled: no step for this many times the usual interval between steps, while members live."
        ),
    ] = 10
    stall_seconds: Annotated[
        _Seconds,
        Meta(
            description="Stalled: not before so many seconds without a step, however short steps are."
        ),
    ] = 300
    on_stall: Annotated[
        Literal["Report", "Restart"],
        Meta(
            description="Report: condition TrainingStalled and an event. Restart: also start all training processes "
            "anew, from their checkpoint."
        ),
    ] = "Report"
    straggler_factor: Annotated[
        Annotated[float, Meta(gt=1, le=100)],
        Meta(
            description="Straggler: its own time for a step is over so many times the median of its role."
        ),
    ] = 2
    straggler_seconds: Annotated[
        _Seconds, Meta(description="Straggler: if that lasts so many seconds.")
    ] = 60
    on_straggler: Annotated[
        Literal["Report", "Replace"],
        Meta(
            description="Report: condition Stragglers and an event. Replace: also replace one straggler at a time by a "
            "new pod, which avoids its node, if the training time saved is worth it."
        ),
    ] = "Report"
    max_straggler_replacements: Annotated[
        Annotated[int, Meta(ge=1, le=100)],
        Meta(
            description="With onStraggler Replace: stragglers that are replaced in the life of the job."
        ),
    ] = 3
    node_check: Annotated[NodeCheck, Meta(description="A look at nodes before training.")] = (
        NodeCheck()
    )
