"""Returns the directories of the embedded cluster, and locks them for one command at a time.

The cache holds the built programs; a state directory holds one cluster and is removed with it.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from elasticjob_localcluster.errors import LocalClusterError


def home(environ: Mapping[str, str]) -> Path:
    """Return the user's home directory, also without $HOME, as in many containers."""
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise LocalClusterError(
            f"user {os.getuid()} has no home directory: "
            "set ELASTICJOB_CACHE and ELASTICJOB_STATE to writable ones"
        ) from None


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Return the directory of the programs that were built."""
    if environ.get("ELASTICJOB_CACHE"):
        return Path(environ["ELASTICJOB_CACHE"]).absolute()
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else home(environ) / ".cache") / "elasticjob"


def state_dir(environ: Mapping[str, str]) -> Path:
    """Return the default directory of a cluster."""
    if environ.get("ELASTICJOB_STATE"):
        return Path(environ["ELASTICJOB_STATE"]).absolute()
    base = environ.get("XDG_STATE_HOME")
    return (Path(base) if base else home(environ) / ".local" / "state") / "elasticjob" / "dev"


def make_directory(path: Path, *, what: str, remedy: str, mode: int = 0o700) -> None:
    """Make a directory and check that it can be written to.

    The error says `what` it is, and its `remedy`.
    """
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, os.strerror(13))
    except OSError as error:
        raise LocalClusterError(
            f"cannot write to {what} {path}: {error.strerror}; {remedy}"
        ) from error


@contextmanager
def locked(path: Path, *, seconds: float, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path`; `on_wait` is called once when another process holds it.

    The kernel releases the lock when its holder ends, so a crash leaves no lock behind.
    """
    deadline = time.monotonic() + seconds
    waiting = False
    while True:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # its last holder removed the directory just now
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                break
            os.close(descriptor)  # its last holder removed the file together with the directory
            continue
        except BlockingIOError:
            os.close(descriptor)
        if time.monotonic() > deadline:
            raise LocalClusterError(
                f"another elasticjob command has held {path} for {seconds:.0f} s; "
                "wait for it, or end it"
            )
        if not waiting:
            on_wait()
            waiting = True
        time.sleep(0.1)
    try:
        yield
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
