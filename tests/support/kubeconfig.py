"""Gives access to a server on the loopback interface that requires no authentication."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

from elasticjob_kube.access import Access


async def no_credentials() -> None:
    """Have no credentials, as the hub."""


def access_of_nobody(url: str) -> Access:
    """Return access to a server, given by its URL."""
    return Access(url, ssl.create_default_context(), no_credentials, None)


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
