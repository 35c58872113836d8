"""Hides the job's token from the training process, which may run as the agent's user or as root.

/proc shows the environment that a process was started with, also variables that it has removed. So
the token is overwritten there. The agent's memory, which keeps the token, is made not dumpable:
only processes with the capability CAP_SYS_PTRACE can read it. execve resets that, so core dumps and
debuggers of the training process work.
"""

from __future__ import annotations

import ctypes
import os

from elasticjob_api import names

_PR_SET_DUMPABLE = 4


def hide_token() -> None:
    """Overwrite the token in the initial environment, and make this process not dumpable."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.getenv.argtypes = [ctypes.c_char_p]
    libc.getenv.restype = ctypes.c_void_p
    # Nothing has set the variable since the start, so the C library points to the kernel's copy.
    if value := libc.getenv(names.ENV_TOKEN.encode()):
        # Not with zeros: two of them would end the environment for programs that read it.
        ctypes.memset(value, ord("*"), len(ctypes.string_at(value)))
        del os.environ[names.ENV_TOKEN]
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed")
