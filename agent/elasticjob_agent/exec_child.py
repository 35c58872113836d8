"""A script that the agent runs as the child process.

It sets the parent-death signal and then executes CMD. The kernel shall kill CMD when the agent is
killed. That has to be set between fork and exec, where the agent itself, which has threads, must
not run Python; a new interpreter may. Standard library only; starts in about 10 ms.
"""

import ctypes
import errno
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def environment() -> dict[str, str]:
    """Return the environment that this process was started with.

    Python may have added a variable (LC_CTYPE) since, and elf_launcher.py has renamed those that
    begin with LD_.
    """
    variables = {}
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 (pathlib takes as long to load as all else here)
        entries = file.read().split(b"\0")
    for entry in entries:
        name, equals, value = entry.partition(b"=")
        if equals:
            variables[os.fsdecode(b"LD_" + name[3:] if name.startswith(b"!D_") else name)] = (
                os.fsdecode(value)
            )
    return variables


def main() -> None:
    """Execute the command in the arguments; the first argument is the agent's process id."""
    agent = int(sys.argv[1])
    command = sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != agent:
        os._exit(128 + signal.SIGKILL)  # the agent was killed before the signal was set
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(
            number, signal.SIG_DFL
        )  # Python ignores them, and a command would inherit that
    try:
        os.execvpe(command[0], command, environment())  # noqa: S606 (no shell is wanted)
    except OSError as error:
        sys.stderr.write(
            f"elasticjob-agent: cannot run {command[0]!r}: {(error.strerror or str(error)).lower()}\n"
        )
        sys.stderr.flush()
        temporary = error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
        os._exit(127 if isinstance(error, FileNotFoundError) else os.EX_OSERR if temporary else 126)


if __name__ == "__main__":
    main()
