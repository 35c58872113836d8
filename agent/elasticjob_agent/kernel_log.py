"""Reads what the kernel logs while a training process runs, where the container may read it.

Usually it may not: it sees /dev/kmsg only if its pod mounts it and has the capability SYSLOG.
"""

from __future__ import annotations

import os
from pathlib import Path

from elasticjob_agent import broken_node

_LOG = Path("/dev/kmsg")
_GPUS = Path("/proc/driver/nvidia/gpus")
"""Has a folder for each GPU of the container, named by its PCI address."""
_RECORD_BYTES = 8192


class KernelLog:
    """The messages since this object was made."""

    def __init__(self, log: Path = _LOG, gpus: Path = _GPUS) -> None:
        """Remember the end of the log."""
        self._gpus = gpus
        self._file: int | None = None
        try:
            self._file = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError:
            self.close()

    def problem(self) -> str:
        """Return what new messages say about this container's GPUs, or an empty text.

        Only the first `broken_node.MOST_LINES` messages are read.
        """
        try:
            gpus = [folder.name for folder in self._gpus.iterdir()]
        except OSError:
            return ""
        return broken_node.in_kernel_log(self._new_lines(), gpus)

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _new_lines(self) -> list[str]:
        lines: list[str] = []
        while self._file is not None and len(lines) < broken_node.MOST_LINES:
            try:
                record = os.read(self._file, _RECORD_BYTES)
            except BrokenPipeError:
                continue  # the kernel has overwritten the next messages: read those that exist
            except OSError:
                break
            if not record:
                break
            lines += record.decode(errors="replace").splitlines()
        return lines
