"""Creates jobs.

From a job file as it stands, or from a script or function with the files that go with it. The job
is created before the ConfigMap of its files, so that this can name the job as its owner and goes
with it. The containers wait for the ConfigMap. Both are tried out before, and where the ConfigMap
cannot be created after all, the job is deleted again: nothing is left of what is refused.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import KubeError
from elasticjob_kube.resources import CONFIG_MAPS, ELASTIC_JOBS

from elasticjob_client.cluster import Cluster, ask
from elasticjob_client.errors import ClientError
from elasticjob_client.manifests import (
    Training,
    config_map_manifest,
    job_manifest,
    job_name,
    owner_reference,
    script_command,
)

MAX_JOB_FILE_BYTES = 1024 * 1024
"""Of a job file: as much as the API server takes."""
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Of Kubernetes' generated names, which can be no words."""
_SUFFIX_CHARACTERS = 5
_FILE_NAME = re.compile(r"[-._a-zA-Z0-9]{1,253}")
"""Of the keys of a ConfigMap."""


@dataclass(frozen=True)
class Submission:
    """A job that shall be created, and the files that its containers have.

    Attributes:
        job: its manifest.
        files: contents by name.
        config_map: name of the ConfigMap with the files.
    """

    job: Json
    files: Mapping[str, bytes] = field(default_factory=dict)
    config_map: str = ""

    def manifests(self) -> list[Json]:
        """Return the objects as they are, but for the owner of the ConfigMap, which only the API server can name."""
        return [
            self.job,
            *([config_map_manifest(self.config_map, self.files)] if self.files else []),
        ]


def read_job_file(path: Path) -> Submission:
    """Return the submission of a job file.

    Raises `ClientError` as `of_job_file` does, and if it cannot be read.
    """
    try:
        text = path.read_text()
    except UnicodeDecodeError as error:
        raise ClientError(
            f"{path} is no text; give a job file, or a Python script (.py)"
        ) from error
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror or error}") from error
    return of_job_file(text, source=str(path))


def of_job_file(text: str, *, source: str) -> Submission:
    """Return the submission of a job file, as it stands.

    Args:
        text: YAML or JSON, of one ElasticJob.
        source: what to call it in errors.

    Raises:
        ClientError: it is no such file.
    """
    if len(text) > MAX_JOB_FILE_BYTES:
        raise ClientError(
            f"{source}: {len(text)} characters; a job file has at most {MAX_JOB_FILE_BYTES}"
        )
    try:
        found = [document for document in yaml.safe_load_all(text) if document is not None]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ClientError(f"{source} is no YAML: {' '.join(str(error).split())[:300]}") from error
    if len(found) != 1:
        raise ClientError(
            f"{source} has {len(found)} documents; a job file has one; kubectl create -f takes more"
        )
    job = found[0]
    kind = (job.get("apiVersion"), job.get("kind")) if isinstance(job, dict) else None
    if kind != (names.API_VERSION, ELASTIC_JOBS.kind):
        raise ClientError(
            f"{source} is no {ELASTIC_JOBS.kind} of {names.API_VERSION}; `elasticjob init` writes one, and "
            "`elasticjob convert` makes one of other operators' jobs"
        )
    if not isinstance(job.get("metadata"), dict):
        raise ClientError(f"{source}: metadata: must be there, with a name")
    return Submission(job)


def of_script(path: Path, training: Training, *, name: str | None = None) -> Submission:
    """Return the submission of a Python script.

    Args:
        path: of the script.
        training: what it trains with; the command is the script's arguments.
        name: of the job; None: one that begins with the script's name.

    Raises:
        ClientError: it cannot be read, is too large, or its name cannot be that of a file in a ConfigMap.
    """
    if not _FILE_NAME.fullmatch(path.name):
        raise ClientError(
            f"{path.name[:80]!r}: a script's name has only letters, digits, -, _ and .; rename it"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror or error}") from error
    command = script_command(path.name, training.command)
    return of_files(
        {path.name: content}, replace(training, command=command), source=path.name, name=name
    )


def of_files(
    files: Mapping[str, bytes], training: Training, *, source: str, name: str | None
) -> Submission:
    """Return the submission of files and of the command that runs them.

    Args:
        files: contents by name.
        training: what to run.
        source: the name from which the job gets its own, if `name` is None.
        name: of the job.

    Raises:
        ClientError: the files are too large, or there is no such framework.
    """
    name = name or job_name(source, _suffix())
    config_map = f"{name}-script-{_suffix()}"
    config_map_manifest(config_map, files)  # raises where they are too large
    return Submission(job_manifest(name, training, config_map=config_map), files, config_map)


async def submit(cluster: Cluster, submission: Submission, *, dry_run: bool = False) -> Json:
    """Create the job and what belongs to it; return the job as the API server has it.

    Args:
        cluster: where; the job's own namespace has been chosen (`in_namespace_of`).
        submission: what to create.
        dry_run: let the API server check all of it, and create nothing.

    Raises:
        Invalid: a field is wrong; the message has a line for each.
        ClientError: the API server refuses it for another reason. Nothing is left.
    """
    if not submission.files:
        return await _create_job(cluster, submission, dry_run=dry_run)
    checked = await _create_job(cluster, submission, dry_run=True)
    await _create_files(cluster, submission, owner=None, dry_run=True)
    if dry_run:
        return checked
    try:
        made = await _create_job(cluster, submission, dry_run=False)
        await _create_files(cluster, submission, owner=owner_reference(made), dry_run=False)
    except (ClientError, asyncio.CancelledError):
        await asyncio.shield(_remove(cluster, submission))
        raise
    return made


def in_namespace_of(cluster: Cluster, submission: Submission, *, chosen: str | None) -> Cluster:
    """Return the session with the namespace that the job names.

    Raises `ClientError` if another one was `chosen`.
    """
    own = submission.job["metadata"].get("namespace")
    if own is None or own == cluster.namespace:
        return cluster
    if chosen is not None:
        raise ClientError(
            f"the job file names namespace {own!s:.63}, and {chosen} was asked for; leave one of them out"
        )
    return replace(cluster, namespace=str(own))


async def _create_job(cluster: Cluster, submission: Submission, *, dry_run: bool) -> Json:
    kube = cluster.kube
    namespace = cluster.namespace
    job = submission.job
    return await ask(
        cluster,
        ELASTIC_JOBS,
        str(job["metadata"].get("name") or job["metadata"].get("generateName") or ""),
        lambda: kube.create(ELASTIC_JOBS, namespace, job, dry_run=dry_run, strict=True),
        repeatable=dry_run,
    )


async def _create_files(
    cluster: Cluster, submission: Submission, *, owner: Json | None, dry_run: bool
) -> None:
    kube = cluster.kube
    namespace = cluster.namespace
    name = submission.config_map
    body = config_map_manifest(name, submission.files, owner=owner)
    await ask(
        cluster,
        CONFIG_MAPS,
        name,
        lambda: kube.create(CONFIG_MAPS, namespace, body, dry_run=dry_run),
    )


async def _remove(cluster: Cluster, submission: Submission) -> None:
    """Delete the job that was created without its files; never another one of its name."""
    kube = cluster.kube
    namespace = cluster.namespace
    name = submission.job["metadata"]["name"]
    with suppress(KubeError):
        job = await kube.get(ELASTIC_JOBS, namespace, name)
        if submission.config_map in _config_maps(job):
            await kube.delete(ELASTIC_JOBS, namespace, name, uid=job["metadata"]["uid"])


def _config_maps(job: Json) -> Sequence[str]:
    """Return the ConfigMaps that volumes of a job name."""
    templates = (
        role["template"].get("spec") or {} for role in job["spec"]["replicaSpecs"].values()
    )
    volumes = [volume for spec in templates for volume in spec.get("volumes") or ()]
    return [(volume.get("configMap") or {}).get("name", "") for volume in volumes]


def _suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_CHARACTERS))
