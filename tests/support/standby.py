"""Recognizes processes in standby, which wait to run a training program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_READ = "0"
_RECVMSG = "47"
"""The numbers of the system calls on x86-64."""


def in_standby(pid: int, command: Sequence[str]) -> bool:
    """Return whether a process has imported its modules and waits for the order to go."""
    at = [at for at, word in enumerate(command) if word.endswith("_standby_start.py")]
    if not at:
        return False
    orders = int(command[at[0] + 1].split(",")[1])
    try:
        call = Path(f"/proc/{pid}/syscall").read_text().split()
    except OSError:
        return False
    return call[0] in (_READ, _RECVMSG) and int(call[1], 16) == orders
