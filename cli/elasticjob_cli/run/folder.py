"""Keeps a folder for each run of this user on this machine, as long as the run lasts.

The folders are in /tmp, not in those of the desktop session, because a run outlives the session
that started it. Each user has a private folder.

`python -m elasticjob_cli.run.folder MARKER FOLDER` is the guard of a run: when the command has
ended, also by SIGKILL, it kills the processes of the run and removes its folder.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from elasticjob_client.errors import ClientError
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.state_directory import locked
from elasticjob_processes import guard

from elasticjob_cli.common.local_runs import (
    BASE_VARIABLE,
    INFO,
    LOCK,
    RunInfo,
    is_held,
    is_private,
)

_BASE_LOCK = ".lock"
_LOCK_SECONDS = 30.0
_MOST_CHARACTERS = 107 - 30
"""The longest path of a folder: that of a socket, without the part that an agent adds."""
_MOST_RUNS = 1000


@dataclass(frozen=True)
class Claim:
    """The folder of a run; it is in use while the descriptor `lock` is open in any process."""

    name: str
    folder: Path
    lock: int


def name_from_command(command: Sequence[str]) -> str:
    """Return a name for a run: that of its script or module, else of its program."""
    scripts = [word for word in command if word.endswith(".py")]
    if scripts:
        source = Path(scripts[0]).stem
    elif "-m" in command[1:-1]:
        source = command[list(command).index("-m") + 1].rpartition(".")[2]
    else:
        source = Path(command[0]).name
    name = re.sub(r"[^a-z0-9]+", "-", source.lower()).strip("-0123456789")[:30].strip("-")
    return name or "run"


@contextmanager
def claimed(base: Path, name: str, *, exact: bool) -> Iterator[Claim]:
    """Create the folder of a run, and keep it locked; the run's guard removes it.

    Args:
        base: the folder of all runs.
        name: the run's name.
        exact: use this name only; otherwise append a number if a run has it.

    Raises:
        ClientError: the folder cannot be made, or a run has that name.
    """
    _make_private(base)
    with _locked(base):
        if not is_private(base):
            raise ClientError(
                f"{base} was replaced by another user; set {BASE_VARIABLE} to another folder"
            )
        _sweep(base)
        chosen = name
        for number in range(2, _MOST_RUNS):
            if not (base / chosen).exists():
                break
            if exact:
                raise ClientError(
                    f"there is a run {name} already: `elasticjob stop {name}` ends it; "
                    "--name gives another"
                )
            chosen = f"{name}-{number}"
        folder = base / chosen
        if len(str(folder)) > _MOST_CHARACTERS:
            raise ClientError(
                f"{folder} is too long for the sockets in it; "
                f"set {BASE_VARIABLE} to a shorter folder"
            )
        folder.mkdir(mode=0o700)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield Claim(chosen, folder, lock)
    finally:
        os.close(lock)


def remove(folder: Path) -> None:
    """Remove the folder of a run that has ended, and with the last one the folder of all runs."""
    base = folder.parent
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(ClientError), _locked(base):
        if [path.name for path in base.iterdir()] == [_BASE_LOCK]:
            shutil.rmtree(base, ignore_errors=True)


def write_info(folder: Path, info: RunInfo) -> None:
    """Write the description of a run for other commands."""
    path = folder / INFO
    path.touch(mode=0o600)
    path.write_bytes(msgspec.json.encode(info))


def _make_private(base: Path) -> None:
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ClientError(
            f"cannot make {base}: {error.strerror}; {BASE_VARIABLE} names another folder"
        ) from error
    if not is_private(base):
        raise ClientError(
            f"{base} is not a private folder of yours (mode 0700); "
            f"remove it, or set {BASE_VARIABLE} to another"
        )


def _sweep(base: Path) -> None:
    """Remove the folders of runs whose command and guard were killed."""
    for folder in base.glob("[a-z]*"):
        if not is_held(folder):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(base: Path) -> Iterator[None]:
    """Hold the lock for creating and removing folders."""
    try:
        with locked(base / _BASE_LOCK, seconds=_LOCK_SECONDS, on_wait=lambda: None):
            yield
    except LocalClusterError as error:
        raise ClientError(str(error)) from error


def start_guard(marker: str, claim: Claim) -> subprocess.Popen[bytes]:
    """Start the guard of the run whose processes have this prefix of their markers.

    It keeps the folder locked until it has removed it, so that no other run of this name begins
    before.
    """
    return guard.start(marker, str(claim.folder), module=__name__, pass_fds=[claim.lock])


if __name__ == "__main__":
    guard.guard(sys.argv[1])
    remove(Path(sys.argv[2]))
