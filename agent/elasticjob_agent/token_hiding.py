"""Hides the job's token and key from the training process.

It may run as the agent's user or as root. /proc shows the environment that a process was started
with, also variables that it has removed. So both are overwritten there. The agent's memory, which
keeps them, is made not dumpable: only processes with the capability CAP_SYS_PTRACE can read it.
execve resets that, so core dumps and debuggers of the training process work.
"""

from __future__ import annotations

import ctypes
import os

from elasticjob_api import names

_PR_SET_DUMPABLE = 4


SECRETS = (names.ENV_TOKEN, names.ENV_PEER_IDENTITY)
"""The variables that the training process does not get."""


def hide_secrets() -> None:
    """Overwrite the secrets in the initial environment, and make this process not dumpable."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.getenv.argtypes = [ctypes.c_char_p]
    libc.getenv.restype = ctypes.c_void_p
    for name in SECRETS:
        # Nothing has set the variable since the start, so the C library points to the kernel's
        # copy.
        if value := libc.getenv(name.encode()):
            # Not with zeros: two of them would end the environment for programs that read it.
            ctypes.memset(value, ord("*"), len(ctypes.string_at(value)))
            del os.environ[name]
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed")
