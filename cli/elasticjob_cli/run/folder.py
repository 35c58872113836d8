"""The folders of the runs of this user on this machine: one for each run, there as long as the run.

They are in /tmp, and not where the desktop session keeps such files, because a run outlives the
session that started it, and is scaled from others. Each user has a folder of his own, which nobody
else can look into.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from elasticjob_client.errors import ClientError
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.state_directory import locked

BASE_VARIABLE = "ELASTICJOB_RUNS"
"""Names another folder for the runs of a user."""
SOCKET = "control"
_LOCK = "lock"
_INFO = "run.json"
_BASE_LOCK = ".lock"
_LOCK_SECONDS = 30.0
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_MOST_CHARACTERS = 107 - 30
"""Of a folder: those of a socket's path, without the rest of it that an agent makes."""
_MOST_RUNS = 1000


class RunInfo(msgspec.Struct, frozen=True):
    """What others need to know of a run.

    Attributes:
        name: of the run.
        pid: of the command.
        started: seconds since the epoch.
        command: the training command.
        framework: of the run.
        master: `host:port`, where the master is queried.
        token: which the master wants.
        authority: which has signed the master's certificate, in PEM.
    """

    name: str
    pid: int
    started: float
    command: list[str]
    framework: str
    master: str
    token: str
    authority: str


@dataclass(frozen=True)
class Claim:
    """The folder of a run, which nobody removes while the descriptor `lock` is open in any process."""

    name: str
    folder: Path
    lock: int


def base_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder that has those of all runs of this user."""
    return Path(environ.get(BASE_VARIABLE) or f"/tmp/elasticjob-{os.getuid()}").absolute()  # noqa: S108 (checked below)


def check_name(name: str) -> str:
    """Return a name that a run can have. Raises `ClientError`."""
    if not _NAME.fullmatch(name):
        raise ClientError(
            f"--name {name[:60]!r}: give at most 40 lower-case letters, digits and '-', a letter first and no '-' last"
        )
    return name


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
    """Make the folder of a run, and hold it; who is killed leaves one that the next run removes.

    Args:
        base: the folder of all runs.
        name: of the run.
        exact: no other name will do; else a number is appended if a run has it.

    The folder is removed by the run's guard.

    Raises:
        ClientError: the folder cannot be made, or a run has that name.
    """
    _make_private(base)
    with _locked(base):
        if not _is_private(base):
            raise ClientError(
                f"{base} was replaced by somebody else; set {BASE_VARIABLE} to another folder"
            )
        _sweep(base)
        chosen = name
        for number in range(2, _MOST_RUNS):
            if not (base / chosen).exists():
                break
            if exact:
                raise ClientError(
                    f"there is a run {name} already: `elasticjob stop {name}` ends it; --name gives another"
                )
            chosen = f"{name}-{number}"
        folder = base / chosen
        if len(str(folder)) > _MOST_CHARACTERS:
            raise ClientError(
                f"{folder} is too long for the sockets in it; set {BASE_VARIABLE} to a shorter folder"
            )
        folder.mkdir(mode=0o700)
        lock = _open_lock(folder / _LOCK)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield Claim(chosen, folder, lock)
    finally:
        os.close(lock)


def remove(folder: Path) -> None:
    """Remove the folder of a run that has ended, and if it was the last one, the folder that they were in."""
    base = folder.parent
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(ClientError), _locked(base):
        if [path.name for path in base.iterdir()] == [_BASE_LOCK]:
            shutil.rmtree(base, ignore_errors=True)


def write_info(folder: Path, info: RunInfo) -> None:
    """Let others know of a run."""
    path = folder / _INFO
    path.touch(mode=0o600)
    path.write_bytes(msgspec.json.encode(info))


def runs(base: Path) -> list[RunInfo]:
    """Return the runs of this user that are there now, by name."""
    found = (
        [find(base, path.name) for path in sorted(base.glob("[a-z]*"))] if _is_private(base) else []
    )
    return [info for info in found if info is not None]


def find(base: Path, name: str) -> RunInfo | None:
    """Return a run by its name, if there is one now."""
    folder = base / name
    if not (_NAME.fullmatch(name) and _is_private(base) and _is_held(folder)):
        return None
    try:
        return msgspec.json.decode((folder / _INFO).read_bytes(), type=RunInfo)
    except (OSError, msgspec.DecodeError):
        return None  # it begins or ends just now


def _make_private(base: Path) -> None:
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ClientError(
            f"cannot make {base}: {error.strerror}; {BASE_VARIABLE} names another folder"
        ) from error
    if not _is_private(base):
        raise ClientError(
            f"{base} is not a folder of yours that nobody else can enter; remove it, or set {BASE_VARIABLE} to another"
        )


def _is_private(base: Path) -> bool:
    try:
        found = base.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _sweep(base: Path) -> None:
    """Remove the folders of runs whose command and guard were killed."""
    for folder in base.glob("[a-z]*"):
        if not _is_held(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_held(folder: Path) -> bool:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


@contextmanager
def _locked(base: Path) -> Iterator[None]:
    """Be the only one that makes or removes folders."""
    try:
        with locked(base / _BASE_LOCK, seconds=_LOCK_SECONDS, on_wait=lambda: None):
            yield
    except LocalClusterError as error:
        raise ClientError(str(error)) from error


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
