"""The worlds in which a program trains, one after the other, in a process that continues."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Mapping
from types import TracebackType

from elasticjob._world_group import Meeting
from elasticjob._world_session import Session
from elasticjob.progress import report_step
from elasticjob.world import WorldChanged

log = logging.getLogger("elasticjob")


class World:
    """A world of processes that train together, by one group.

        with world:
            while state.step < total:
                train(state)
                state.step += 1
                world.commit(total=total)

    Attributes:
        rank: this process, counted from 0.
        size: the number of processes.
        round: the number of this world.
    """

    def __init__(self, session: Session, meeting: Meeting) -> None:
        """Begin; `worlds` calls it."""
        self.rank = meeting.rank
        self.size = meeting.size
        self.round = meeting.round
        self._session = session
        self._entered = False
        self._finished = False
        self._error: Exception | None = None

    def __enter__(self) -> World:
        """Train in this world. The block ends, without an error, when the world changes."""
        self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Return whether the block ends because the world changes."""
        if error is None:
            self._finished = True
            return False
        if isinstance(error, self._session.errors) and self._session.is_broken():
            log.warning("the world of round %d has broken", self.round, exc_info=error)
            traceback.clear_frames(trace)  # they would keep the group and a model alive
            self._error = error.with_traceback(None)
            self._session.state._return_to_commit()
            return True
        return isinstance(error, WorldChanged)

    def commit(
        self,
        *,
        total: int | None = None,
        samples: float = 0,
        metrics: Mapping[str, float] | None = None,
        compute_seconds: float | None = None,
        save: bool = False,
    ) -> None:
        """Keep a copy of the state in memory, and report its step.

        All ranks call it after the same steps. If a process is lost, all return to the last commit.
        The world changes at a commit, in all ranks at the same one.

        Args:
            total: the number of steps of the whole job, if known.
            samples: the number of samples that this process has trained since its last commit.
            metrics: numbers to show, such as the loss.
            compute_seconds: the seconds that this process has computed since its last commit,
                without waiting for the others, if known.
            save: whether rank 0 also saves a checkpoint in the folder; the same in all ranks.

        Raises:
            WorldChanged: the world ends after this commit. `with` handles it.
            RuntimeError: this is not in the block.
        """
        self._check_entered()
        ends = self._session.commit(save=save)
        report_step(
            self._session.state.step,
            total=total,
            samples=samples,
            metrics=metrics,
            compute_seconds=compute_seconds,
        )
        if ends:
            raise WorldChanged(f"the world of round {self.round} ends")

    def _check_entered(self) -> None:
        if not self._entered:
            raise RuntimeError(
                "the training is not in `with world:`, which ends it when the world changes"
            )


def enter_worlds(session: Session) -> Iterator[World]:
    """Join each world of the job, one after the other, until the training is finished."""
    try:
        while True:
            entered = World(session, session.enter())
            yield entered
            entered._check_entered()
            if entered._finished and session.finish():
                return
            session.leave(entered._error)
            del entered  # what an error holds of the group ends here
    finally:
        session.close()
