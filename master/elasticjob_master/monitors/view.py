"""The part of a job that the monitors read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from elasticjob_api.health import Health

from elasticjob_master.core.history import History
from elasticjob_master.core.progress import Progress
from elasticjob_master.core.rendezvous.members import Members
from elasticjob_master.core.rendezvous.state import RendezvousState


class JobView(Protocol):
    """All that a monitor reads, and never changes. The controller has this shape."""

    @property
    def members(self) -> Members:
        """The members, in the order in which they joined."""

    @property
    def rendezvous(self) -> RendezvousState:
        """The present world."""

    @property
    def progress(self) -> Progress:
        """The progress of the training."""

    @property
    def history(self) -> History:
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
