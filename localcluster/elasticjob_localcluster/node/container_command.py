"""Makes the command of a container: arguments, environment, working directory."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticjob_api import names

from elasticjob_localcluster.node.admission import has_token, of_path
from elasticjob_localcluster.node.container_process import Command
from elasticjob_localcluster.node.context import NodeContext
from elasticjob_localcluster.node.environment import MARKER, TERMINATION_LOG, command_line
from elasticjob_localcluster.node.pod_model import Json, Pod
from elasticjob_localcluster.node.service_account import KUBECONFIG
from elasticjob_localcluster.node.volumes import volume_folder
from elasticjob_localcluster.training_library import with_training_library

_COPIED_PROGRAMS = f"{names.AGENT_DIRECTORY}/agent/bin/"
"""Where an init container puts the agent's programs: those of this machine are used instead."""


async def container_command(
    context: NodeContext,
    pod: Pod,
    container: Json,
    *,
    incarnation: int,
    address: str,
    directory: Path,
) -> tuple[Command, Path]:
    """Return what to run for a container, and the file it may write its termination message to.

    The working directory and the home of all containers of a pod is one scratch directory of the
    pod's own.

    Raises:
        ConfigError: when something that the environment names is missing.
        KubeError: when the API server could not be asked.
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
    where = Path(container.get("workingDir") or scratch)
    argv = command_line(container, variables)
    if argv[0].startswith(_COPIED_PROGRAMS):
        # The agent brings its library, for whatever Python the training has.
        variables = with_training_library(variables, directory / "library")
    argv = with_folders(with_installed_programs(argv), _mounted_folders(pod, container, directory))
    return Command(argv, variables, where, owner), message_file


def with_installed_programs(argv: Sequence[str]) -> list[str]:
    """Return a command with the agent's programs of this machine where it names those that are copied into a pod."""
    installed = f"{Path(sys.executable).parent}/"
    return [argument.replace(_COPIED_PROGRAMS, installed) for argument in argv]


def with_folders(argv: Sequence[str], folders: Mapping[str, Path]) -> list[str]:
    """Return a command with the folders where it names the paths at which they would be mounted."""
    changed = list(argv)
    for path, folder in folders.items():
        replacement = str(folder).replace("\\", r"\\")
        changed = [of_path(path).sub(replacement, argument) for argument in changed]
    return changed


def _mounted_folders(pod: Pod, container: Json, directory: Path) -> dict[str, Path]:
    """Return the folders with the files of ConfigMaps, by the paths at which the container would have them."""
    volumes = {volume["name"] for volume in pod.spec.get("volumes") or () if "configMap" in volume}
    return {
        mount["mountPath"]: volume_folder(directory, mount["name"])
        for mount in container.get("volumeMounts") or ()
        if mount["name"] in volumes
    }
