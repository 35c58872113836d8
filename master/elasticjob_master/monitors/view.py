"""The part of a job that the monitors read.

Properties only, so that the type checker finds a monitor that writes to the job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from elasticjob_api.health import Health

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.rules import Phase, RoleSize


class MembersView(Protocol):
    """The members, in the order in which they joined."""

    @property
    def disconnected(self) -> Collection[str]:
        """The UIDs of the members without a stream that are waited for."""

    def __iter__(self) -> Iterator[Member]:
        """Return all members."""

    def __len__(self) -> int:
        """Return their number."""

    def get(self, uid: str, /) -> Member | None:
        """Return a member by its pod's UID."""


class RendezvousView(Protocol):
    """The present world; see `RendezvousState`."""

    @property
    def round(self) -> int:
        """Its number."""

    @property
    def sizes(self) -> Mapping[str, RoleSize] | None:
        """The roles' sizes; None until they are known."""

    @property
    def phase(self) -> Phase:
        """The activity of the job."""

    @property
    def world(self) -> tuple[str, ...]:
        """The UIDs of its members by rank."""

    @property
    def confirmed_at(self) -> float | None:
        """When all of it had started."""

    @property
    def finished_at(self) -> float | None:
        """When the first member had finished."""


class ProgressView(Protocol):
    """The progress of the training; see `Progress`."""

    @property
    def round(self) -> int:
        """The round of the latest report."""

    @property
    def step(self) -> int:
        """The last finished step."""

    @property
    def total_steps(self) -> int:
        """The number of steps of the whole training; 0: not known."""

    @property
    def samples(self) -> float:
        """Samples trained so far."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """The last value of each metric, the one that was reported first before the others."""

    def reporter_count(self) -> int:
        """Return how many members have reported in this round."""

    def samples_per_second(self, now: float, /) -> float:
        """Return the throughput of all members together."""

    def steps_per_second(self, now: float, /) -> float:
        """Return how fast the step grows; 0: not known."""

    def eta_seconds(self, now: float, /) -> float | None:
        """Return the seconds to go at the present rate, or None when that is not known."""


class HistoryView(Protocol):
    """The recorded history; see `History`."""

    def has_event(self, reason: str, message: str, /) -> bool:
        """Return whether an event is recorded."""


class JobView(Protocol):
    """All that a monitor reads.

    The controller has this shape; tests may use anything else that has.
    """

    @property
    def members(self) -> MembersView:
        """The members."""

    @property
    def rendezvous(self) -> RendezvousView:
        """The present world."""

    @property
    def progress(self) -> ProgressView:
        """The progress of the training."""

    @property
    def history(self) -> HistoryView:
        """The recorded history."""

    @property
    def health(self) -> Health:
        """`spec.health` of the job."""

    @property
    def suspended(self) -> bool:
        """True if the user wants the job suspended."""

    @property
    def gpus(self) -> Mapping[str, int]:
        """The GPUs of a member, by role."""
