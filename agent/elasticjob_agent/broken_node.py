"""Recognizes messages that say that a GPU or the network card of this node is broken.

Only messages after which another node is needed count. Not those that an application causes (Xid
13, 31, 43 and 45), nor those after which NVIDIA lets the program run again (63 and 94). NCCL's
"unhandled system error" and "remote process exited" do not count: they are as likely a fault of
another member.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

XIDS = {
    48: "uncorrectable ECC error",
    62: "the GPU's microcontroller has halted",
    64: "a row of GPU memory could not be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    95: "uncontained memory error",
    119: "the GPU's system processor does not answer",
    120: "error of the GPU's system processor",
    140: "unrecovered ECC error",
}
"""By NVIDIA's catalog they need a reset of the GPU or node, or a repair."""
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{7,16})\): (\d{1,3}),")
_OTHERS = (
    (re.compile(r"uncorrectable ECC error encountered"), "uncorrectable ECC error"),
    (re.compile(r"uncorrectable NVLink error detected"), "uncorrectable NVLink error"),
    (re.compile(r"GPU (?:is lost|has fallen off the bus)"), "the GPU is lost"),
    (
        re.compile(
            r"NET/IB : \S{1,64} Got async (?:fatal )?event ?: (?:local catastrophic|port) error"
        ),
        "the network card, or its link, has failed",
    ),
)
MOST_LINES = 1000
_LONGEST_LINE = 2048
_SHOWN = 300


def in_output(lines: Iterable[str]) -> str:
    """Return what the last of a program's lines say about its node, or an empty text."""
    for line in _bounded(lines):
        if found := _XID.search(line):
            meaning = XIDS.get(int(found[2]))
        else:
            meaning = next((means for pattern, means in _OTHERS if pattern.search(line)), None)
        if meaning:
            return f"{meaning}: {line.strip()[:_SHOWN]}"
    return ""


def in_kernel_log(lines: Iterable[str], gpus: Iterable[str]) -> str:
    """Return what the kernel says about this container's GPUs, or an empty text.

    The log is that of the whole node: a message about a GPU of another pod does not count. A GPU is
    named by its PCI address, such as "0000:3b:00.0".
    """
    own = tuple(gpu.lower() for gpu in gpus)
    return in_output(
        line
        for line in _bounded(lines)
        if (found := _XID.search(line)) and any(gpu.startswith(found[1].lower()) for gpu in own)
    )


def _bounded(lines: Iterable[str]) -> list[str]:
    return [line[:_LONGEST_LINE] for line in [*lines][-MOST_LINES:]]


_LOG = Path("/dev/kmsg")
_GPUS = Path("/proc/driver/nvidia/gpus")
"""Has a folder for each GPU of the container, named by its PCI address."""
_RECORD_BYTES = 8192


class KernelLog:
    """The messages of the kernel since this object was made, where the container may read them.

    Usually it may not: it sees /dev/kmsg only if its pod mounts it and has the capability SYSLOG.
    """

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

        Only the first `MOST_LINES` messages are read.
        """
        try:
            gpus = [folder.name for folder in self._gpus.iterdir()]
        except OSError:
            return ""
        return in_kernel_log(self._new_lines(), gpus)

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _new_lines(self) -> list[str]:
        lines: list[str] = []
        while self._file is not None and len(lines) < MOST_LINES:
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
