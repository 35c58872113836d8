"""Starts the programs of a control plane with more flags than those of the embedded cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from elasticjob_localcluster.controlplane.binaries import find_programs
from elasticjob_localcluster.progress_display import ProgressDisplay
from elasticjob_localcluster.state_directory import cache_dir


def with_flags(directory: Path, flags: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which these programs have these flags.

    `directory` gets a script for each of them.
    """
    environ = dict(os.environ)
    found = find_programs(cache_dir(environ), environ, ProgressDisplay())
    for name, more in flags.items():
        script = directory / name
        script.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && exec "{found[name]}" --version\n'
            f'exec "{found[name]}" "$@" {more}\n'
        )
        script.chmod(0o755)
    assets = (str(directory), environ.get("KUBEBUILDER_ASSETS"))
    return {**environ, "KUBEBUILDER_ASSETS": os.pathsep.join(filter(None, assets))}
