"""Finds the runs of `elasticjob run` on this machine, for commands that change or show them.

Each run of a user has a folder, which the run itself makes and removes (`run/folder.py`).
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticjob_client.access import Access
from elasticjob_client.errors import ClientError, WrongArgument

from elasticjob_cli.common.streams import echo

LOCAL = "local/"
"""Begins the names that always mean a run. NAME alone means a run if one of this name exists and no
option names a cluster.
"""
BASE_VARIABLE = "ELASTICJOB_RUNS"
"""The variable that names another folder for the runs of a user."""
SOCKET = "control"
LOCK = "lock"
INFO = "run.json"
NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class RunInfo:
    """The description of a run for other commands.

    Attributes:
        name: the run's name.
        pid: the process id of the command.
        started: seconds since the epoch.
        command: the training command.
        framework: the run's framework.
        master: `host:port` of the master's queries.
        token: the token that the master accepts.
        authority: the authority of the master's certificate, in PEM.
    """

    name: str
    pid: int
    started: float
    command: list[str]
    framework: str
    master: str
    token: str
    authority: str


def base_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder that contains those of all runs of this user."""
    return Path(environ.get(BASE_VARIABLE) or f"/tmp/elasticjob-{os.getuid()}").absolute()  # noqa: S108 (checked below)


def check_name(name: str) -> str:
    """Return a valid name of a run or a job. Raises `WrongArgument` for others."""
    if not NAME.fullmatch(name):
        raise WrongArgument(
            f"--name {name[:60]!r}: give at most 40 lower-case letters, digits and '-', "
            "a letter first and no '-' last"
        )
    return name


def runs(base: Path) -> list[RunInfo]:
    """Return the present runs of this user, by name."""
    found = [find(base, path.name) for path in sorted(base.glob("[a-z]*"))]
    return [info for info in found if info is not None]


def find(base: Path, name: str) -> RunInfo | None:
    """Return the run with a name; None without one."""
    folder = base / name
    if not (NAME.fullmatch(name) and is_private(base) and is_held(folder)):
        return None
    import msgspec  # slow, and mostly there is no run

    try:
        return msgspec.json.decode((folder / INFO).read_bytes(), type=RunInfo)
    except (OSError, msgspec.DecodeError):
        return None  # it is beginning or ending


def hint(name: str) -> str:
    """Return how to reach a run on this machine with this name; empty if there is none."""
    base = base_folder(os.environ)
    if find(base, name) is not None:
        return f"; {LOCAL}{name} is a run on this machine"
    from elasticjob_client.arguments import similar

    near = similar(name, [info.name for info in runs(base)])
    return f"; did you mean {LOCAL}{near}, a run on this machine?" if near else ""


def local_run(name: str | None, access: Access, address: str | None = None) -> RunInfo | None:
    """Return the run that a command means, and print that; None if it means an object of a cluster.

    Args:
        name: the name on the user's command line; None if it names nothing.
        access: the cluster and namespace that the user chooses.
        address: that of a master in a cluster; None if not given.

    Raises:
        ClientError: the command means a run that does not exist.
    """
    if name is None:
        return None
    base = base_folder(os.environ)
    if name.startswith(LOCAL):
        found = find(base, name.removeprefix(LOCAL))
        if found is None:
            there = ", ".join(info.name for info in runs(base)) or "none"
            raise ClientError(f"there is no run {name[:80]} on this machine; there are: {there}")
        return found
    found = find(base, name) if access == Access() and address is None else None
    if found is not None:
        echo(f"run {name} on this machine (-n NAMESPACE: in a cluster)", err=True)
    return found


def is_private(base: Path) -> bool:
    """Return whether a path is a folder of this user that no other user can read."""
    try:
        found = base.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def is_held(folder: Path) -> bool:
    """Return whether the run of a folder lasts."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
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
