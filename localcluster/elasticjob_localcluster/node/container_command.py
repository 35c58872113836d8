"""Makes the command of a container: arguments, environment, working directory."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_api.quantity import parse_quantity

from elasticjob_localcluster.node.admission import has_token, is_in_folder, of_path
from elasticjob_localcluster.node.container_process import Command
from elasticjob_localcluster.node.context import NodeContext
from elasticjob_localcluster.node.environment import MARKER, TERMINATION_LOG, command_line
from elasticjob_localcluster.node.pod_model import Pod
from elasticjob_localcluster.node.service_account import KUBECONFIG
from elasticjob_localcluster.node.volumes import state_folder, volume_folder
from elasticjob_localcluster.training_library import with_training_library

_COPIED_PROGRAMS = f"{names.AGENT_DIRECTORY}/agent/bin/"
"""The folder of the programs that an init container copies; here the installed ones are used."""


async def container_command(
    context: NodeContext,
    pod: Pod,
    container: Json,
    *,
    incarnation: int,
    address: str,
    directory: Path,
) -> tuple[Command, Path]:
    """Return the command of a container, and the file for its termination message.

    The containers of a pod share a scratch directory as home and working directory. Raises
    ConfigError if something that the environment names is missing, or KubeError.
    """
    scratch = directory / "scratch"
    scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    message_file = directory / f"{container['name']}.message"
    owner = f"{context.node_id}/{pod.metadata.uid}/{container['name']}/{incarnation}"
    base = {"HOSTNAME": pod.hostname, "HOME": str(scratch), TERMINATION_LOG: str(message_file)}
    if has_token(pod):
        base["KUBECONFIG"] = str(directory / KUBECONFIG)
    variables = await context.environment(pod, container, address, base)
    variables[MARKER] = owner
    if names.ENV_STATE_FOLDER in variables:
        in_memory = state_folder(context.node_id, pod.metadata.uid)
        in_memory.mkdir(exist_ok=True, mode=0o700)
        variables[names.ENV_STATE_FOLDER] = str(in_memory)
    memory = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    if memory is not None and names.ENV_STANDBY in variables:
        variables[names.ENV_MEMORY_LIMIT] = str(int(parse_quantity(memory)))
    where = Path(container.get("workingDir") or scratch)
    argv = command_line(container, variables)
    if argv[0].startswith(_COPIED_PROGRAMS):
        # In a pod, the agent brings its library, for any Python.
        variables = with_training_library(variables, directory / "library")
    folders = _mounted_folders(pod, container, directory)
    own = [entry["name"] for entry in container.get("env") or () if entry["name"] in variables]
    values = with_folders([variables[name] for name in own], folders)
    variables |= dict(zip(own, values, strict=True))
    argv = with_folders(with_installed_programs(argv), folders)
    return Command(argv, variables, where, owner), message_file


def with_installed_programs(argv: Sequence[str]) -> list[str]:
    """Return a command with the installed programs of the agent in place of the copied ones."""
    installed = f"{Path(sys.executable).parent}/"
    return [argument.replace(_COPIED_PROGRAMS, installed) for argument in argv]


def with_folders(argv: Sequence[str], folders: Mapping[str, Path]) -> list[str]:
    """Return a command with the folders in place of their mount paths."""
    changed = list(argv)
    for path, folder in folders.items():
        replacement = str(folder).replace("\\", r"\\")
        changed = [of_path(path).sub(replacement, argument) for argument in changed]
    return changed


def _mounted_folders(pod: Pod, container: Json, directory: Path) -> dict[str, Path]:
    """Return the folders of the mounted ConfigMaps and empty folders by their mount paths."""
    volumes = {volume["name"]: volume for volume in pod.spec.get("volumes") or ()}
    return {
        mount["mountPath"]: volume_folder(directory, mount["name"])
        for mount in container.get("volumeMounts") or ()
        if is_in_folder(mount, volumes.get(mount["name"], {}))
    }
