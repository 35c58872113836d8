"""Executes a command that the kernel kills together with its parent.

Runs as a script in a new interpreter, between fork and exec of the command. The parent-death signal
must be set there, and a parent with threads must not run Python between its fork and exec. Uses
only the standard library and starts in about 10 ms.
"""

import ctypes
import errno
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61
_TEMPORARY = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


def dying_with_parent(command: list[str]) -> list[str]:
    """Return the arguments with which this process starts a command that dies with it."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def original_environment() -> dict[str, str]:
    """Return the environment that this process was started with.

    Python may have added a variable (LC_CTYPE) since. An installed agent's launcher
    (elf_launcher.py) has renamed variables LD_X to !D_X; they get their names back.
    """
    variables = {}
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 (importing pathlib takes as long as all else here)
        entries = file.read().split(b"\0")
    for entry in entries:
        name, equals, value = entry.partition(b"=")
        if name.startswith(b"!D_"):
            name = b"LD_" + name[3:]
        if equals:
            variables[os.fsdecode(name)] = os.fsdecode(value)
    return variables


def cannot_start_code(error: OSError) -> int:
    """Return the exit code for a command that could not be started, as a shell reports it.

    71 if the machine is short of memory or processes, which may be temporary.
    """
    if isinstance(error, FileNotFoundError):
        return 127
    return os.EX_OSERR if error.errno in _TEMPORARY else 126


def main() -> None:
    """Execute the command in the arguments; the first argument is the parent's process id."""
    parent = int(sys.argv[1])
    command = sys.argv[2:]
    die_with_parent()
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)  # the parent was killed before the signal was set
    # Where Yama restricts ptrace, this lets other children of the parent read stacks of this one.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, parent, 0, 0, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them; the command would inherit that
    try:
        os.execvpe(command[0], command, original_environment())  # noqa: S606 (no shell is wanted)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        sys.stderr.write(f"elasticjob-agent: cannot run {command[0]!r}: {reason}\n")
        sys.stderr.flush()
        os._exit(cannot_start_code(error))


if __name__ == "__main__":
    main()
