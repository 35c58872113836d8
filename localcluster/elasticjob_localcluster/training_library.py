"""Provides `import elasticjob` to a training program of this machine, in any Python.

In a pod, the agent brings the library. Here the training often runs in the Python of a Conda or
virtual environment, without this package.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from elasticjob_api import names


def with_training_library(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return an environment whose PYTHONPATH ends with the library.

    A folder, which need not exist, gets links to the library alone.
    """
    folder.mkdir(exist_ok=True)
    for name in names.LIBRARY_PACKAGES:
        found = importlib.util.find_spec(name)
        link = folder / name
        if found is not None and found.submodule_search_locations and not link.is_symlink():
            link.symlink_to(found.submodule_search_locations[0])
    paths = [environment.get("PYTHONPATH", ""), str(folder)]
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
