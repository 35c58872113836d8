"""Writes a checkpoint from memory to the storage while the training goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from elasticjob._agent_connection import AgentError
from elasticjob.checkpoint_storage import CheckpointStorage

log = logging.getLogger("elasticjob")


class WriteBehind:
    """Writes one checkpoint at a time, in all ranks."""

    def __init__(
        self,
        storage: CheckpointStorage,
        any_rank: Callable[[bool], bool],
        *,
        begin: Callable[[str], bool],
        complete: Callable[[str], bool],
        remove: Callable[[str], None],
    ) -> None:
        """Prepare to begin, complete and remove checkpoints of the storage.

        The thread calls `any_rank`. A checkpoint is completed if this world still trains, and what
        was written of it is removed in rank 0.
        """
        self._storage = storage
        self._any_rank = any_rank
        self._begin = begin
        self._complete = complete
        self._remove = remove
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._source = ""

    @property
    def source(self) -> str:
        """The checkpoint in memory that is being written, or ""."""
        return self._source if self._thread is not None and self._thread.is_alive() else ""

    def start(self, source: str, target: str, files: Mapping[str, Path]) -> None:
        """Begin to write the files of this rank; all ranks call it, while none writes.

        They are those of a checkpoint in memory (`source`), by their path in the checkpoint.
        """
        self._source = source
        self._stopped.clear()
        self._thread = threading.Thread(
            target=self._write, args=(target, files), name="elasticjob-checkpoint", daemon=True
        )
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Give the present checkpoint up, because a newer one is written; all ranks call it."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _write(self, target: str, files: Mapping[str, Path]) -> None:
        try:
            written = (
                self._all(lambda: self._begin(target))
                and self._all(lambda: self._copy(target, files))
                and self._all(lambda: self._complete(target))
            )
        except AgentError as error:
            log.info("checkpoint %s is not written to the storage: %s", target, error)
            return
        if not written:
            if not self._stopped.is_set():
                log.warning("checkpoint %s is only in memory; a later one is written", target)
            self._remove(target)

    def _all(self, act: Callable[[], bool]) -> bool:
        """Call a function in every rank; return whether it has succeeded in all."""
        failed = True
        try:
            failed = not act()
        except (OSError, TimeoutError, AgentError) as error:
            if not self._stopped.is_set():
                log.warning("the storage cannot be written: %s", error)
        finally:  # also after the storage's own errors, or the others would wait for this rank
            failed = self._any_rank(failed)
        return not failed

    def _copy(self, target: str, files: Mapping[str, Path]) -> bool:
        for path, source in files.items():
            self._storage.copy(target, path, source, self._stopped.is_set)
        return True
