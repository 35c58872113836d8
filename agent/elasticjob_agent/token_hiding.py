"""Hides the job's token from the training process, which may run as the same user as the agent, or as root.

A process's environment stays readable in /proc as it was at its start, whatever the process removes
from it later. So the token is overwritten there. And the kernel is told that nobody may look into
the agent's memory, which has to keep the token: not dumpable, it can be read and traced only with
the capability CAP_SYS_PTRACE. What the agent starts is dumpable again, since execve resets that:
core dumps and debuggers of the training process work.
"""

from __future__ import annotations

import ctypes
import os

from elasticjob_api import names

_PR_SET_DUMPABLE = 4


def hide_token() -> None:
    """Overwrite the token in this process's initial environment, and let nobody read this process's memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.getenv.argtypes = [ctypes.c_char_p]
    libc.getenv.restype = ctypes.c_void_p
    # Nothing has set the variable since the start, so the C library still has it where the kernel
    # has put it.
    if value := libc.getenv(names.ENV_TOKEN.encode()):
        # Not by zeros: programs that read a process's environment take two of them for its end.
        ctypes.memset(value, ord("*"), len(ctypes.string_at(value)))
        del os.environ[names.ENV_TOKEN]
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed")
