"""Creates jobs from a job file, or from a program with its files.

The job is created before the ConfigMap of its files, which names the job as its owner. Containers
wait for the ConfigMap. Both are first checked by dry runs. If the ConfigMap cannot be created, the
job is deleted again, so that a refused job leaves nothing.

The job carries the digests of its files, since another user may create a ConfigMap of that name
first, or replace it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import msgspec
from elasticjob_api import names, yaml_documents
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json, Object
from elasticjob_api.reserved_variables import member_variable_names, reserved_variable_error
from elasticjob_api.traces import parse_context
from elasticjob_kube.errors import KubeError
from elasticjob_kube.resources import CONFIG_MAPS, ELASTIC_JOBS
from msgspec import Meta

from elasticjob_client.cluster import Cluster, ask
from elasticjob_client.errors import ClientError, NameTaken, WrongArgument
from elasticjob_client.job_template import JobTemplate
from elasticjob_client.manifests import (
    Program,
    config_map_manifest,
    job_manifest,
    job_name,
    owner_reference,
)

MAX_JOB_FILE_BYTES = 1024 * 1024
_MOST_ERROR_CHARACTERS = 300
"""The API server accepts no larger objects."""
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""The alphabet of Kubernetes' generated names, which avoids words."""
_SUFFIX_CHARACTERS = 5
_CANNOT_START = {
    "action": "FailJob",
    "exitCodes": [1],
    "messagePattern": r"(^|\n)(SyntaxError|IndentationError|TabError|ModuleNotFoundError): .*\s*$",
}
"""Another pod has the same files and the same image, so its program cannot start either."""


@dataclass(frozen=True)
class Submission:
    """A job to create, and the files of its containers.

    Attributes:
        job: its manifest.
        files: contents by name.
        config_map: name of the ConfigMap with the files.
        other: returns the same submission with a unique name, if the user has chosen no name.
    """

    job: Json
    files: Mapping[str, bytes] = field(default_factory=dict)
    config_map: str = ""
    other: Callable[[], Submission] | None = None

    def __post_init__(self) -> None:
        """Refuse variables that the operator would refuse. Raises `WrongArgument`."""
        check_variables(self.job)

    def manifests(self) -> list[Json]:
        """Return the objects, without the owner of the ConfigMap, which does not exist yet."""
        if not self.files:
            return [self.job]
        return [self.job, config_map_manifest(self.config_map, self.files)]


def read_job_file(path: Path) -> Submission:
    """Return the submission of a job file.

    Raises `WrongArgument` if it is a script or cannot be read, and the errors of `of_job_file`.
    """
    if path.suffix == ".py":
        raise WrongArgument(f"{path} is a Python script, not a job file; `train` creates its job")
    try:
        with path.open() as file:
            text = file.read(MAX_JOB_FILE_BYTES + 1)
    except UnicodeDecodeError as error:
        raise WrongArgument(
            f"{path} is not a text; give a job file, or a Python script (.py)"
        ) from error
    except OSError as error:
        raise WrongArgument(f"{path} cannot be read: {error.strerror or error}") from error
    return of_job_file(text, source=str(path))


def of_job_file(text: str, *, source: str) -> Submission:
    """Return the submission of an unchanged job file.

    Raises:
        ClientError: the text is not a job file.
    """
    if len(text) > MAX_JOB_FILE_BYTES:
        raise ClientError(
            f"{source}: {len(text)} characters; a job file has at most {MAX_JOB_FILE_BYTES}"
        )
    try:
        found = yaml_documents.read(text)
    except yaml_documents.Unreadable as error:
        raise ClientError(f"{source}: {str(error)[:_MOST_ERROR_CHARACTERS]}") from error
    if len(found) != 1:
        raise ClientError(
            f"{source} has {len(found)} documents; a job file has one; kubectl create -f takes more"
        )
    job = found[0]
    kind = (job.get("apiVersion"), job.get("kind")) if isinstance(job, dict) else None
    if kind != (names.API_VERSION, ELASTIC_JOBS.kind):
        raise ClientError(
            f"{source} is not an {ELASTIC_JOBS.kind} of {names.API_VERSION}; `elasticjob init` "
            "writes one, and `elasticjob convert` converts other operators' jobs"
        )
    if not isinstance(job.get("metadata"), dict):
        raise ClientError(f"{source}: metadata: is required, with a name")
    return Submission(job)


def of_program(program: Program, template: JobTemplate, *, name: str | None = None) -> Submission:
    """Return the submission of a program.

    The job fails without a restart if Python cannot compile a file or does not find a module.

    Args:
        program: a script or function, with its files.
        template: the pods.
        name: the job's name; None for the program's, with a suffix if another job has it.

    Raises:
        ClientError: the files are too large, or there is no image.
    """
    program = replace(program, restart_rules=[*program.restart_rules, _CANNOT_START])

    def named(name: str, other: Callable[[], Submission] | None) -> Submission:
        config_map = f"{name}-script-{_suffix()}"
        config_map_manifest(config_map, program.files)  # raises if they are too large
        job = job_manifest(name, template, program, config_map=config_map)
        return Submission(job, program.files, config_map, other)

    if name is not None:
        return named(name, None)
    source = program.source
    return named(job_name(source), lambda: named(job_name(source, _suffix()), None))


async def submit(cluster: Cluster, submission: Submission, *, dry_run: bool = False) -> Json:
    """Create the job and the ConfigMap of its files; return the created job.

    Args:
        cluster: a session with the job's own namespace (`in_namespace_of`).
        submission: the job and its files.
        dry_run: let the API server check both, and create nothing.

    If another job has the name, and the user has chosen none, the job gets a unique name.

    Raises:
        Invalid: fields are wrong; the message has a line for each.
        ClientError: the API server refuses the job for another reason. Nothing is created.
    """
    try:
        return await _submit(cluster, submission, dry_run=dry_run)
    except NameTaken:
        if submission.other is None:
            raise
    return await _submit(cluster, submission.other(), dry_run=dry_run)


async def _submit(cluster: Cluster, submission: Submission, *, dry_run: bool) -> Json:
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
    """Return the session with the job's own namespace.

    Raises `WrongArgument` if the user has `chosen` another namespace.
    """
    own = submission.job["metadata"].get("namespace")
    if own is None or own == cluster.namespace:
        return cluster
    if chosen is not None:
        raise WrongArgument(
            f"the job file has namespace {own!s:.63}, and you chose {chosen}; leave one of them out"
        )
    return replace(cluster, namespace=str(own))


async def _create_job(cluster: Cluster, submission: Submission, *, dry_run: bool) -> Json:
    kube = cluster.kube
    namespace = cluster.namespace
    job = _in_trace(submission.job)
    return await ask(
        cluster,
        ELASTIC_JOBS,
        str(job["metadata"].get("name") or job["metadata"].get("generateName") or ""),
        lambda: kube.create(ELASTIC_JOBS, namespace, job, dry_run=dry_run, strict=True),
        repeatable=dry_run,
    )


def _in_trace(job: Json) -> Json:
    """Return a job as a part of the trace that this program runs in, if any (docs/metrics.md)."""
    given = os.environ.get(names.ENV_TRACEPARENT, "")
    own = job["metadata"].get("annotations") or {}
    if parse_context(given) is None or not isinstance(own, dict):
        return job
    annotations = {names.ANNOTATION_TRACEPARENT: given, **own}
    return {**job, "metadata": {**job["metadata"], "annotations": annotations}}


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
    """Delete the job that was created without its files, but not another job with its name."""
    kube = cluster.kube
    namespace = cluster.namespace
    name = submission.job["metadata"]["name"]
    with suppress(KubeError):
        job = await kube.get(ELASTIC_JOBS, namespace, name)
        if submission.config_map in _config_maps(job):
            await kube.delete(ELASTIC_JOBS, namespace, name, uid=job["metadata"]["uid"])


def _config_maps(job: Json) -> Sequence[str]:
    """Return the names of the ConfigMaps in the job's volumes."""
    templates = (
        role["template"].get("spec") or {} for role in job["spec"]["replicaSpecs"].values()
    )
    volumes = [volume for spec in templates for volume in spec.get("volumes") or ()]
    return [(volume.get("configMap") or {}).get("name", "") for volume in volumes]


def _suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_CHARACTERS))


class _Variable(Object, frozen=True):
    name: str


class _Container(Object, frozen=True):
    env: list[_Variable] = []


class _PodSpec(Object, frozen=True):
    containers: Annotated[list[_Container], Meta(min_length=1)]


class _Template(Object, frozen=True):
    spec: _PodSpec


def check_variables(job: Json) -> None:
    """Check the variables of a job's manifest. Raises `WrongArgument`.

    The API server says what is wrong with a manifest of another form.
    """
    try:
        read = msgspec.convert(job, ElasticJob)
        containers = {
            role: msgspec.convert(spec.template, _Template).spec.containers
            for role, spec in read.spec.replica_specs.items()
            if spec.managed
        }
    except msgspec.ValidationError:
        return
    of_member = member_variable_names(read.spec.framework)
    for role, (first, *_) in containers.items():
        variables = [each.name for each in first.env]
        if error := reserved_variable_error(read, variables, of_member):
            field = f"spec.replicaSpecs.{role}.template.spec.containers[0]"
            raise WrongArgument(f"{field}.{error}")
