"""Brings `import elasticjob` to a training program of this machine, whatever Python it runs in.

A worker's pod has it from its agent. Here the training's Python is often another one than ours:
that of a Conda or virtual environment, or the system's.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from elasticjob_api import names


def with_training_library(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return an environment in which Python finds the library, after all that the user's PYTHONPATH names.

    Args:
        environment: that of the program.
        folder: for links to the library, and to nothing else of this Python; it is made if it is not there.
    """
    folder.mkdir(exist_ok=True)
    for name in names.LIBRARY_PACKAGES:
        found = importlib.util.find_spec(name)
        link = folder / name
        if found is not None and found.submodule_search_locations and not link.is_symlink():
            link.symlink_to(found.submodule_search_locations[0])
    paths = [environment.get("PYTHONPATH", ""), str(folder)]
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
