"""Prepares the volumes that processes can have.

These are host paths, mounted at their own path, ConfigMaps and empty folders. Nothing can be
mounted, so the files of a ConfigMap are written into a folder of the pod, and an emptyDir is one.
It replaces the mount path in the container's command and variables (`container_command.py`).
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from elasticjob_api.meta import Json

from elasticjob_localcluster.node.context import NodeContext
from elasticjob_localcluster.node.environment import ConfigError
from elasticjob_localcluster.node.pod_model import Pod

_MEMORY = "/dev/shm"  # noqa: S108 (only this user can read what is created in it)
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
    """Create the host paths of the types `…OrCreate`.

    Raises ConfigError if a path is missing or has another type.
    """
    for index, volume in enumerate(pod.spec.get("volumes") or ()):
        if "hostPath" not in volume:
            continue
        path = Path(volume["hostPath"]["path"])
        kind = volume["hostPath"].get("type") or ""
        try:
            if kind == "DirectoryOrCreate":
                path.mkdir(parents=True, exist_ok=True)
            elif kind == "FileOrCreate":
                path.touch()
        except OSError as error:
            raise ConfigError(
                f"spec.volumes[{index}].hostPath: {path} cannot be created: {error}"
            ) from error
        if kind and not _MUST_BE[kind][1](path):
            raise ConfigError(
                f"spec.volumes[{index}].hostPath: {path} is not {_MUST_BE[kind][0]} on this machine"
            )


async def prepare_folders(context: NodeContext, pod: Pod, directory: Path) -> None:
    """Make the folders of the pod's volumes, with the files of the ConfigMaps.

    Raises ConfigError if a ConfigMap or a key is missing, or KubeError.
    """
    for volume in pod.spec.get("volumes") or ():
        if "emptyDir" in volume:
            volume_folder(directory, volume["name"]).mkdir(parents=True, exist_ok=True)
        source = volume.get("configMap")
        if source is None:
            continue
        found = await context.read(pod.metadata.namespace, ("ConfigMap", source["name"]))
        if found is None and not source.get("optional"):
            raise ConfigError(
                f'MountVolume.SetUp failed for volume "{volume["name"]}": '
                f'configmap "{source["name"]}" not found'
            )
        for path, content in _files(source, found or {}):
            file = volume_folder(directory, volume["name"]) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def state_folder(node_id: str, pod_uid: str) -> Path:
    """Return the folder in this machine's memory for the checkpoints of a pod's training."""
    return Path(f"{_MEMORY}/elasticjob-{node_id}-{pod_uid}")


def remove_state_folders(node_id: str) -> None:
    """Remove the folders in memory that an earlier process of this node has left."""
    for folder in Path(_MEMORY).glob(f"elasticjob-{node_id}-*"):
        shutil.rmtree(folder, ignore_errors=True)


def volume_folder(directory: Path, volume: str) -> Path:
    """Return the folder with the files of a pod's volume; `directory`: the pod's."""
    return directory / "volumes" / volume


def _files(source: Json, found: Json) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each file; the API server refuses paths out of the volume."""
    content = {key: text.encode() for key, text in (found.get("data") or {}).items()}
    content |= {
        key: base64.b64decode(data) for key, data in (found.get("binaryData") or {}).items()
    }
    if not source.get("items"):
        yield from content.items()
        return
    for item in source["items"]:
        if item["key"] in content:
            yield item["path"], content[item["key"]]
        elif not source.get("optional"):
            raise ConfigError(
                f"configmap {source['name']} has no key {item['key']}, which a volume names"
            )
