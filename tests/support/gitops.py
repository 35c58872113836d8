"""Asks GitOps tools for an object's state: kstatus, as in Flux, and Argo CD's script."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from elasticjob_localcluster.controlplane.builds import find_go, go_environment
from elasticjob_localcluster.progress_display import ProgressDisplay
from elasticjob_localcluster.state_directory import cache_dir
from lupa.lua51 import LuaRuntime  # type: ignore[import-untyped]  # the version that Argo CD has

_KSTATUS = Path(__file__).parent / "kstatus"
_ARGO_CD = Path(__file__).parents[2] / "deploy" / "argocd" / "elasticjob-health.lua"


def build_kstatus(folder: Path) -> Path:
    """Compile the program that calls kstatus; Go caches the result."""
    cache = cache_dir(os.environ)
    program = folder / "kstatus"
    command = [str(find_go(cache, os.environ, ProgressDisplay())), "build", "-o", str(program), "."]
    subprocess.run(
        command, cwd=_KSTATUS, env=go_environment(cache, os.environ), check=True, timeout=300
    )
    return program


def kstatus(program: Path, found: dict[str, Any]) -> str:
    """Return kstatus's word for an object: InProgress, Current, Failed, …"""
    return subprocess.run(
        [program], input=json.dumps(found), capture_output=True, text=True, check=True
    ).stdout.strip()


def argo_cd_health(found: dict[str, Any]) -> str:
    """Return the health that Argo CD shows for an object."""
    lua = LuaRuntime()
    lua.globals().obj = lua.table_from(found, recursive=True)
    return str(lua.execute(_ARGO_CD.read_text()).status)
