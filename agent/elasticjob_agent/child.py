"""The last step before CMD: this file is run by itself, as a new process, and becomes CMD.

The kernel shall kill CMD when the agent is killed. That has to be asked for between fork and exec, where the agent
itself, full of threads, must not run Python; a fresh interpreter may. Standard library only; starts in about 10 ms.
"""

import ctypes
import errno
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become the command in the arguments; the first argument is the agent's process id."""
    agent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != agent:
        os._exit(128 + signal.SIGKILL)  # the agent was killed before the kernel knew
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and a command would inherit that
    try:
        os.execvp(command[0], command)  # noqa: S606 (no shell is wanted)
    except OSError as error:
        sys.stderr.write(f"elasticjob-agent: cannot run {command[0]!r}: {(error.strerror or str(error)).lower()}\n")
        sys.stderr.flush()
        passes = error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
        os._exit(127 if isinstance(error, FileNotFoundError) else os.EX_OSERR if passes else 126)


if __name__ == "__main__":
    main()
