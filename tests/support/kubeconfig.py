"""Writes the kubeconfig of a server on the loopback interface that requires no authentication."""

from __future__ import annotations

import json
from pathlib import Path


def write_kubeconfig(path: Path, server: str) -> Path:
    """Write the kubeconfig of a server, given by its URL, and return its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {"server": server}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "nobody"}}],
        "current-context": "context",
    }
    path.write_text(json.dumps(config))
    return path
