"""The command line of the agent: `run -- CMD…`, `remote-shell` and `install DIR`."""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from elasticjob_api import names
from elasticjob_processes.exec_child import die_with_parent, original_environment

from elasticjob_agent import LIBRARY, VERSION, config, termination
from elasticjob_agent.accelerators import has_accelerator
from elasticjob_agent.log import say
from elasticjob_agent.remote_shell import programs

_PR_SET_DUMPABLE = 4
SECRETS = (names.ENV_TOKEN, names.ENV_PEER_IDENTITY)
"""The variables that the training process does not get."""


def hide_secrets() -> None:
    """Hide the job's token and key from the training process, which may run as the same user.

    /proc shows the environment that a process was started with, also variables that it has removed.
    So the secrets are overwritten there. This process, which keeps them in its memory, is made not
    dumpable: only processes with the capability CAP_SYS_PTRACE can read it. execve resets that, so
    core dumps and debuggers of the training process work.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.getenv.argtypes = [ctypes.c_char_p]
    libc.getenv.restype = ctypes.c_void_p
    for name in SECRETS:
        # Nothing has set the variable since the start, so this points to the kernel's copy.
        if value := libc.getenv(name.encode()):
            # Not with zeros: two of them would end the environment for programs that read it.
            ctypes.memset(value, ord("*"), len(ctypes.string_at(value)))
            del os.environ[name]
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed")


EX_CONFIG = 78


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="elasticjob-agent", description="Keeps a training process in step with its job."
    )
    parser.add_argument("--version", action="version", version=VERSION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run a training command as a member of a job")
    run.add_argument(
        "command", nargs="+", metavar="CMD", help="the command and its arguments, after --"
    )
    run.set_defaults(work=lambda given: _run(given.command))
    shell = commands.add_parser(
        "remote-shell", help="run the commands that the job's launcher starts with its `ssh`"
    )
    shell.set_defaults(work=lambda _given: _run(programs.command(programs.WORKER)))
    copy = commands.add_parser(
        "install", help="put an agent that runs in any image into a directory"
    )
    copy.add_argument(
        "directory",
        type=Path,
        metavar="DIR",
        help="the new directory, which has the same path in the other container",
    )
    copy.add_argument(
        "--run-at",
        type=Path,
        metavar="PATH",
        help="the path of the directory in the other container, if it is not DIR",
    )
    copy.set_defaults(work=lambda given: _install(given.directory, given.run_at))
    given = parser.parse_args(arguments)
    code: int = given.work(given)
    return code


def _install(directory: Path, run_at: Path | None) -> int:
    from elasticjob_agent import install  # only here: `run` does not need its imports

    try:
        sys.stdout.write(f"elasticjob-agent: {install.install(directory, run_at)}\n")
    except install.InstallError as error:
        return _refuse(str(error), os.EX_CANTCREAT)
    return 0


def _run(command: list[str]) -> int:
    refusal = _cannot_run(command[0])
    if refusal is not None:
        code, reason = refusal
        return _refuse(f"cannot run {command[0]!r}: {reason}", code)
    try:
        settings = config.load(os.environ)
    except config.ConfigError as error:
        return _refuse(str(error), EX_CONFIG)
    environment = _training_environment()
    if settings.framework == "pytorch" and not has_accelerator(environment):
        # Otherwise Accelerate, and Hugging Face's Trainer, train alone in each process.
        environment.setdefault("ACCELERATE_USE_CPU", "true")
    if names.ENV_CONTAINER in os.environ:
        # the guard of an embedded node or a local run finds processes by it; it is hidden next
        die_with_parent()
    # before the user's command runs; from now on /proc/self cannot be read
    hide_secrets()

    from elasticjob_agent import agent  # only now: gRPC takes a while to load

    return agent.run(settings, command, environment)


def _training_environment() -> dict[str, str]:
    """Return the container's environment without the secrets.

    Its PYTHONPATH has the packages that the job has installed, and the library.
    """
    environment = original_environment()
    for name in SECRETS:
        environment.pop(name, None)
    library = Path(sys.prefix, LIBRARY)  # exists only in an installed agent
    packages = environment.get(names.ENV_PYTHON_PACKAGES, "")
    if packages or library.is_dir():
        ours = str(library) if library.is_dir() else ""
        paths = [packages, environment.get("PYTHONPATH", ""), ours]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return environment


def _cannot_run(program: str) -> tuple[int, str] | None:
    """Return the exit code, as a shell's, and the reason if a program cannot be run."""
    has_reference = "$(" in program  # each world may run another program
    if has_reference or shutil.which(program):
        return None
    if shutil.which(program, mode=os.F_OK):
        return 126, "not an executable file"
    if "/" in program:
        return 127, "no such file"
    return 127, f"no such file in PATH ({os.environ.get('PATH', '')})"


def _refuse(message: str, code: int) -> int:
    say(message)
    termination.write(os.environ, f"elasticjob-agent: {message}")
    return code


if __name__ == "__main__":
    sys.exit(main())
