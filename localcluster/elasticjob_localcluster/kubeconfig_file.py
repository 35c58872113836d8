"""Writes kubeconfigs, each for one user of one cluster, that only their owner can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def write_kubeconfig(
    path: Path, *, server: str, authority: str, user: Mapping[str, str], namespace: str
) -> None:
    """Write a kubeconfig; a reader of an earlier one never sees an incomplete file.

    The authority is in Base64 of PEM, and the namespace is that of requests that name none.
    """
    name = "elasticjob-dev"
    cluster = {"server": server, "certificate-authority-data": authority}
    context = {"cluster": name, "user": name, "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": context}],
    }
    write_private(path, json.dumps(config, indent=1).encode() + b"\n")  # JSON is YAML too


def write_private(path: Path, data: bytes) -> None:
    """Replace a file at once by one that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_bytes(data)
    new.replace(path)
