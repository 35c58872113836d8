"""Builds programs with Go from their pinned modules, with as little CPU as possible.

Go downloads only sources and checks them against go.sum.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from elasticjob_localcluster.controlplane.programs import KUBERNETES, Program
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.foreground import last_lines, run_in_foreground

_GIGABYTE = 10**9
_COLD = 4 * _GIGABYTE
_WARM = 1 * _GIGABYTE
_COMPILER_MEMORY = 2 * _GIGABYTE
"""More than the linker, the largest process, takes without a garbage collection: 1.7 GB."""
_FLAGS = ("-mod=readonly", "-buildvcs=false", "-trimpath")
_NO_DEBUGGING = "-gcflags=all=-dwarf=false"
"""Leaves out the debugging information, which the linker would drop (-s -w); the code is equal."""


def flags(program: Program) -> tuple[str, ...]:
    """Return the flags of `go build` that determine the content of a program."""
    return (*_FLAGS, f"-tags={program.tags}") if program.tags else _FLAGS


def build(
    programs: Sequence[Program],
    go: Path,
    target: Path,
    environ: Mapping[str, str],
    tick: Callable[[], None],
) -> None:
    """Build a file that is all of these programs.

    Args:
        programs: programs of one package.
        go: the Go to use.
        target: the path of the file.
        environ: the environment of Go.
        tick: called regularly.

    Raises:
        LocalClusterError: the build failed.
    """
    first = programs[0]
    collector = collector_settings(_available_bytes(), os.cpu_count() or 1)
    status, output = run_in_foreground(
        [
            str(go),
            "build",
            *flags(first),
            _NO_DEBUGGING,
            "-ldflags",
            first.ldflags,
            "-o",
            str(target),
            first.package,
        ],
        cwd=first.module,
        environ={**collector, **environ},
        tick=tick,
    )
    if status != 0:
        raise failure(", ".join(program.name for program in programs), output)


def collector_settings(available: int, processes: int) -> dict[str, str]:
    """Return the settings of the garbage collector of Go's compilers.

    Compilers end soon, so that collecting garbage is mostly wasted. They collect none where memory
    allows it: each process may then take an equal part of three quarters of the available memory.

    Args:
        available: the available memory in bytes.
        processes: the number of compilers that run at the same time.
    """
    share = available * 3 // 4 // processes
    return {"GOGC": "off", "GOMEMLIMIT": str(share)} if share >= _COMPILER_MEMORY else {}


def _available_bytes() -> int:
    """Return the memory that this machine, or the container of this process, has left."""
    available: int = psutil.virtual_memory().available
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        available = min(available, limit - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no control group of version 2, or one without a limit
        pass
    return available


def failure(names: str, output: str) -> LocalClusterError:
    """Return the error of a failed build, with its likely cause."""
    detail = last_lines(output, 8)
    if re.search(r"no space left on device|disk quota exceeded", output):
        text = (
            "the disk is full: free about 4 GB, "
            "or set ELASTICJOB_CACHE, GOCACHE, GOMODCACHE and TMPDIR to another one"
        )
    elif re.search(
        r"dial tcp|no such host|proxyconnect|i/o timeout|TLS handshake|module lookup disabled",
        output,
    ):
        text = (
            "Go could not download the sources: check the network, "
            "or set GOPROXY to a module proxy you can reach"
        )
    else:
        text = "the compiler failed; its last lines follow"
    return LocalClusterError(f"could not build {names}: {text}", detail=detail)


def check_space(go: Path, cache: Path, environ: Mapping[str, str]) -> None:
    """Refuse a build that would fill the disk."""
    command = [str(go), "env", "-json", "GOCACHE", "GOMODCACHE"]
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=30, env=dict(environ), cwd="/"
    )
    if answer.returncode != 0:
        raise LocalClusterError(
            "`go env` failed; check the Go installation", detail=last_lines(answer.stderr, 5)
        )
    go_cache, modules = (
        Path(json.loads(answer.stdout)[name]) for name in ("GOCACHE", "GOMODCACHE")
    )
    need = _WARM if (modules / "k8s.io" / f"kubernetes@{KUBERNETES}").is_dir() else _COLD
    for directory in (cache, go_cache, modules):
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        if free < need:
            raise LocalClusterError(
                f"{existing} has {free / _GIGABYTE:.1f} GB free "
                f"and the build takes {need / _GIGABYTE:.0f} GB: free some space, "
                "or set ELASTICJOB_CACHE, GOCACHE and GOMODCACHE to another disk"
            )
