"""Prepares host paths: the only volumes that processes can have, mounted at their own path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from elasticjob_localcluster.node.environment import ConfigError
from elasticjob_localcluster.node.pod_model import Pod

_MUST_BE: dict[str, tuple[str, Callable[[Path], bool]]] = {
    "Directory": ("a directory", Path.is_dir),
    "DirectoryOrCreate": ("a directory", Path.is_dir),
    "File": ("a file", Path.is_file),
    "FileOrCreate": ("a file", Path.is_file),
    "Socket": ("a socket", Path.is_socket),
    "CharDevice": ("a character device", Path.is_char_device),
    "BlockDevice": ("a block device", Path.is_block_device),
}


def prepare_host_paths(pod: Pod) -> None:
    """Create the host paths that are to be created and check the others.

    Raises:
        ConfigError: naming the path that is missing or of another kind.
    """
    for index, volume in enumerate(pod.spec.get("volumes") or ()):
        if "hostPath" not in volume:
            continue
        path, kind = Path(volume["hostPath"]["path"]), volume["hostPath"].get("type") or ""
        try:
            if kind == "DirectoryOrCreate":
                path.mkdir(parents=True, exist_ok=True)
            elif kind == "FileOrCreate":
                path.touch()
        except OSError as error:
            raise ConfigError(f"spec.volumes[{index}].hostPath: {path} cannot be created: {error}") from error
        if kind and not _MUST_BE[kind][1](path):
            raise ConfigError(f"spec.volumes[{index}].hostPath: {path} is not {_MUST_BE[kind][0]} on this machine")
