"""Returns all that a training program can see of its start, as JSON values."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PR_GET_PDEATHSIG = 2
_STATUS = ("SigBlk", "SigIgn", "SigCgt", "Uid", "Gid", "Groups", "CapEff", "NoNewPrivs", "Seccomp")


def facts() -> dict[str, Any]:
    """Return them; two starts in the same world may differ in none."""
    main = vars(sys.modules["__main__"])
    death_signal = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(death_signal), 0, 0, 0)
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    limits = ("CPU", "FSIZE", "DATA", "STACK", "CORE", "NOFILE", "NPROC", "AS", "MEMLOCK", "NICE")
    return {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "flags": repr(sys.flags),
        "executable": sys.executable,
        "warnoptions": sys.warnoptions,
        "xoptions": {name: str(value) for name, value in sys._xoptions.items()},
        "main": {name: _text(main[name]) for name in sorted(main) if name.startswith("__")},
        "main_loader": (main["__loader__"].name, main["__loader__"].path),
        "is_main": sys.modules["__main__"].__dict__ is main,
        "builtins": main["__builtins__"] is builtins,
        "environment": dict(os.environ),
        "getenv": _getenv("ELASTICJOB_RANK"),
        "folder": str(Path.cwd()),
        "descriptors": dict(_descriptors()),
        "leads_session": (os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()),
        "parent": os.getppid(),
        "death_signal": death_signal.value,
        "status": {name: status.get(name) for name in _STATUS},
        "oom_score": Path("/proc/self/oom_score_adj").read_text(),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduler": os.sched_getscheduler(0),
        "affinity": sorted(os.sched_getaffinity(0)),
        "umask": _umask(),
        "limits": [resource.getrlimit(getattr(resource, f"RLIMIT_{each}")) for each in limits],
        "handlers": {each.name: _text(signal.getsignal(each)) for each in signal.Signals},
        "threads": [thread.name for thread in threading.enumerate()],
        "buffered": (repr(sys.stdout), sys.stdout.line_buffering),
        "encodings": (sys.stdout.encoding, sys.stderr.encoding, sys.getfilesystemencoding()),
    }


def _getenv(name: str) -> str:
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return (getenv(name.encode()) or b"").decode()


def _text(value: Any) -> str:
    return repr(value).split(" at 0x")[0]


def _descriptors() -> Iterator[tuple[str, str]]:
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of this listing
            yield entry.name, str(entry.readlink()).split(":")[0]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
