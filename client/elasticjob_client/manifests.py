"""Builds the manifest of a job that runs one command in each member. Pure.

`submit`, `init` and the Python client use it. Fields that the user does not set are left out, so
that the API's defaults apply.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import PurePath

from elasticjob_api import file_digests, names
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.meta import Json

from elasticjob_client.errors import ClientError, WrongArgument
from elasticjob_client.job_template import SHARED_MEMORY, JobTemplate
from elasticjob_client.pod_parts import objective, secret_variable, toleration, volume

SCRIPT_DIRECTORY = "/elasticjob-script"
"""The folder in the containers with the submitted files."""
MAX_FILES_BYTES = 768 * 1024
"""Bound of all files of a job. In a ConfigMap, whose bound is 1 MiB, base64 adds a third."""
MAX_FILES = 256
"""Bound of their number: their digests are one environment variable, of at most 128 KiB."""
MAX_JOB_NAME = 40
CONTAINER = "train"
_PACKAGES_DIRECTORY = "/elasticjob-packages"
"""The folder with the link to the packages that the job has installed."""
_LINK = "site-packages"
_OTHER_THAN_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Program:
    """What each container runs.

    Attributes:
        source: the name of the script or function, after which the job is named.
        command: the program with its arguments.
        files: contents by their path below `SCRIPT_DIRECTORY`.
        restart_rules: the workers' rules.
    """

    source: str
    command: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    restart_rules: Sequence[Json] = ()


def job_name(source: str, suffix: str = "") -> str:
    """Return a name for a job that runs this file or function; a suffix makes it unique."""
    base = _OTHER_THAN_NAME.sub("-", PurePath(source).stem.lower()).strip("-")
    base = base.lstrip("0123456789-") or "job"
    end = f"-{suffix}" if suffix else ""
    return f"{base[: MAX_JOB_NAME - len(end)].rstrip('-')}{end}"


def script_command(file: str, arguments: Sequence[str] = ()) -> list[str]:
    """Return the command that runs one of the submitted files with unbuffered output."""
    return ["python", "-u", f"{SCRIPT_DIRECTORY}/{file}", *arguments]


def job_manifest(
    name: str, template: JobTemplate, program: Program, *, config_map: str | None = None
) -> Json:
    """Return the job.

    Args:
        name: the job's name.
        template: its pods.
        program: the job carries the digests of its files.
        config_map: the ConfigMap with the program's files.

    Raises:
        WrongArgument: there is no image.
    """
    if not template.image:
        raise WrongArgument(
            "image: give --image: the program runs in a container of an image that has its packages"
        )
    framework = template.framework or "custom"
    required = FRAMEWORKS[framework].required
    others = [group[0] for group in required if names.ROLE_WORKER not in group]
    roles = {names.ROLE_WORKER: _worker(template, program, config_map)}
    # Parameter servers and the like run the same program, which reads its role from the framework.
    without_gpus = replace(template, gpus=0)
    roles |= {
        role: {"replicas": 1, "template": _pod_template(without_gpus, program, config_map)}
        for role in others
    }
    spec: Json = {"framework": framework, "replicaSpecs": roles}
    if template.autoscale:
        spec["autoscaling"] = {"enabled": True, "objective": objective(template.autoscale)}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": spec,
    }


def config_map_manifest(
    name: str, files: Mapping[str, bytes], *, owner: Json | None = None
) -> Json:
    """Return the ConfigMap of a job's files, which is immutable.

    Args:
        name: the ConfigMap's name.
        files: contents by name.
        owner: reference to the job; the ConfigMap is deleted with the job.

    Raises:
        ClientError: the files are too large.
    """
    size = sum(map(len, files.values()))
    if size > MAX_FILES_BYTES:
        raise ClientError(
            f"{', '.join([*files][:5])}: {size} bytes; submitted files have at most "
            f"{MAX_FILES_BYTES}; put them into the image or on a volume (--volume), or submit a "
            "job file (elasticjob init writes one)"
        )
    if len(files) > MAX_FILES:
        raise ClientError(
            f"{len(files)} files; a job has at most {MAX_FILES} submitted files; put them into the "
            "image or on a volume (--volume)"
        )
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for path, content in files.items():
        try:
            text[_key(path)] = content.decode()
        except UnicodeDecodeError:
            binary[_key(path)] = base64.b64encode(content).decode()
    manifest: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "immutable": True,
    }
    if owner:
        manifest["metadata"]["ownerReferences"] = [owner]
    if text:
        manifest["data"] = text
    if binary:
        manifest["binaryData"] = binary
    return manifest


def owner_reference(job: Json) -> Json:
    """Return the owner reference to an existing job."""
    metadata = job["metadata"]
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _worker(template: JobTemplate, program: Program, config_map: str | None) -> Json:
    workers = template.workers or 1
    role: Json = {"replicas": workers}
    if isinstance(workers, tuple):
        role = {"replicas": workers[0], "minReplicas": workers[0], "maxReplicas": workers[-1]}
    if template.restart_limit is not None:
        role["restartLimit"] = template.restart_limit
    if program.restart_rules:
        role["restartRules"] = list(program.restart_rules)
    return role | {"template": _pod_template(template, program, config_map)}


def _pod_template(template: JobTemplate, program: Program, config_map: str | None) -> Json:
    """Return the pod template of a role; fields that nobody has given are left out."""
    volumes, mounts = _volumes(template, program, config_map)
    variables = dict(template.env)
    if config_map is not None:
        variables[names.ENV_FILES_SHA256] = file_digests.encoded(program.files)
    secrets = [secret_variable(text) for text in template.env_secrets]
    env = [{"name": name, "value": value} for name, value in variables.items()]
    env += [entry for name, entry in secrets if name]
    env_from = [entry for name, entry in secrets if not name]
    requests = {"cpu": template.cpu, "memory": template.memory}
    needs = {"requests": _given(requests), "limits": _given({"memory": template.memory})}
    gpus = {names.RESOURCE_GPU: str(template.gpus or "")}
    container = {
        "name": CONTAINER,
        "image": template.image,
        "command": list(program.command),
        "env": env,
        "envFrom": env_from,
        "resources": _given(needs | {"limits": needs["limits"] | _given(gpus)}),
        "volumeMounts": mounts,
    }
    install = {}
    if template.pip:
        packages = {"name": names.ENV_PYTHON_PACKAGES, "value": f"{_PACKAGES_DIRECTORY}/{_LINK}"}
        install = container | {
            "name": "install-packages",
            "command": _install_command(template),
            "resources": _given(needs),
            "volumeMounts": [each for each in mounts if each["mountPath"] != SCRIPT_DIRECTORY],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        container["env"] = [*env, packages]
    spec = {
        "serviceAccountName": template.service_account,
        "imagePullSecrets": [{"name": name} for name in template.pull_secrets],
        "nodeSelector": dict(template.node_selector),
        "tolerations": [toleration(text) for text in template.tolerations],
        "initContainers": [_given(install)] if install else [],
        "containers": [_given(container)],
        "volumes": volumes,
    }
    return {"spec": _given(spec)}


def _volumes(
    template: JobTemplate, program: Program, config_map: str | None
) -> tuple[list[Json], list[Json]]:
    """Return the volumes of a pod, and the mounts of its containers."""
    volumes: list[Json] = []
    mounts: list[Json] = []

    def add(name: str, path: str, source: Json, *, read_only: bool = False) -> None:
        volumes.append({"name": name, **source})
        mount = {"name": name, "mountPath": path}
        mounts.append(mount | {"readOnly": True} if read_only else mount)

    if config_map is not None:
        source: Json = {"name": config_map}
        if any("/" in path for path in program.files):
            source["items"] = [{"key": _key(path), "path": path} for path in program.files]
        add("script", SCRIPT_DIRECTORY, {"configMap": source}, read_only=True)
    for index, text in enumerate(template.volumes):
        found = volume(text)
        add(f"volume-{index}", found.path, found.source, read_only=found.read_only)
    if template.shared_memory:
        memory = {"medium": "Memory", "sizeLimit": template.shared_memory}
        add("shared-memory", SHARED_MEMORY, {"emptyDir": memory})
    if template.pip:
        add("packages", _PACKAGES_DIRECTORY, {"emptyDir": {}})
    return volumes, mounts


def _install_command(template: JobTemplate) -> list[str]:
    program = resources.files("elasticjob_client").joinpath("install_packages.py").read_text()
    cache = template.pip_cache
    folder = f"{cache or _PACKAGES_DIRECTORY}/installed"
    downloads = f"{cache}/downloads" if cache else ""
    link = f"{_PACKAGES_DIRECTORY}/{_LINK}"
    return ["python", "-c", program, link, folder, downloads, *template.pip]


def _key(path: str) -> str:
    """Return the key of a file in the ConfigMap; keys have no slashes."""
    if "/" not in path:
        return path
    return f"{hashlib.sha256(path.encode()).hexdigest()[:16]}-{PurePath(path).name}"


def _given(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value not in (None, [], {}, "")}
