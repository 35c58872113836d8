"""Jobs: read, list, suspend, resume, stop, delete."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_status import ENDED
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS

from elasticjob_client.arguments import check_text, similar
from elasticjob_client.cluster import Cluster, ask
from elasticjob_client.errors import ClientError, JobEnded, NoSuchObject

T = TypeVar("T")


def read(found: Json, as_type: type[T]) -> T:
    """Return an object of the API server as a Python object.

    Raises `ClientError` if this version does not understand the object.
    """
    try:
        return msgspec.convert(found, as_type)
    except msgspec.ValidationError as error:
        metadata = found.get("metadata", {})
        what = f"{as_type.__name__} {metadata.get('namespace')}/{metadata.get('name')}"
        raise ClientError(
            f"{what} cannot be read: {error}; is this elasticjob older than the CRDs?"
        ) from error


def end_of(job: ElasticJob) -> str:
    """Return how a job has ended, on one line."""
    end = f"job {job.metadata.namespace}/{job.metadata.name} has ended, as {job.status.phase}"
    return ": ".join(filter(None, (end, on_one_line(job.status.message))))


def on_one_line(message: str) -> str:
    """Return a job's message on one line: of last words only the first line, which is the cause.

    Operators of version 0.1.0 wrote the cause last.
    """
    lines = [" ".join(line.split()) for line in message.splitlines() if line.strip()]
    if len(lines) > 2:
        lines = [lines[0], "…", *lines[-1:]] if "Traceback" in lines[0] else [lines[0], "…"]
    return " ".join(lines)


async def get_job(cluster: Cluster, name: str) -> ElasticJob:
    """Return a job. Raises `NoSuchObject`, `ClientError`."""
    return read(await get_object(cluster, name), ElasticJob)


async def get_object(cluster: Cluster, name: str) -> Json:
    """Return a job as the API server does. Raises `NoSuchObject`, `ClientError`."""
    return await cluster.get(ELASTIC_JOBS, name)


async def find_job(cluster: Cluster, name: str, *, exact: bool = False) -> ElasticJob:
    """Return the job that has the name a user gives, or else the only one that begins with it.

    With `exact`, `name` is the whole name.

    Raises:
        WrongArgument: the name is no text.
        NoSuchObject: there is no such job, or there are several. A similar name is suggested.
        ClientError: another error.
    """
    check_text("name", name, "train-1")
    try:
        return await get_job(cluster, name)
    except NoSuchObject as error:
        try:
            found = {str(job["metadata"]["name"]): job for job in await list_jobs(cluster)}
        except ClientError:
            raise error from None
        matching = [] if exact else [each for each in found if each.startswith(name)]
        if not matching:
            near = similar(name, found)
            raise (NoSuchObject(f"{error}; did you mean {near}?") if near else error) from None
        if len(matching) > 1:
            several = ", ".join(matching[:5]) + (", …" if len(matching) > 5 else "")
            where = f"{ELASTIC_JOBS.kind} {cluster.namespace}/{name}"
            raise NoSuchObject(f"{where}: {several} begin with this; give one of them") from error
        return read(found[matching[0]], ElasticJob)


async def has_ended(cluster: Cluster, name: str) -> bool:
    """Return whether a job has ended, or is deleted. Raises `ClientError`."""
    try:
        return (await get_job(cluster, name)).status.phase in ENDED
    except NoSuchObject:
        return True


async def list_jobs(
    cluster: Cluster,
    *,
    all_namespaces: bool = False,
    phase: str | None = None,
    selector: str = "",
) -> list[Json]:
    """Return the jobs as objects of the API server, by namespace and name. Raises `ClientError`.

    `phase`: return only jobs in this phase; `selector`: only jobs whose labels match.
    """
    found = await cluster.list(ELASTIC_JOBS, all_namespaces=all_namespaces, label_selector=selector)
    chosen = (
        job
        for job in found
        if phase is None or job.get("status", {}).get("phase", "Pending") == phase
    )
    return sorted(chosen, key=lambda job: (job["metadata"]["namespace"], job["metadata"]["name"]))


async def set_run_policy(cluster: Cluster, name: str, **fields: bool) -> ElasticJob:
    """Set fields of a job's run policy, such as `suspend`; return the job before the change.

    Raises:
        NoSuchObject: there is no such job.
        JobEnded: the job has ended, so the fields would have no effect.
        ClientError: the API server refuses the change.
    """
    before = await get_job(cluster, name)
    _raise_if_ended(before)
    body: Json = {"spec": {"runPolicy": fields}}
    kube = cluster.kube
    namespace = cluster.namespace
    patched = await ask(
        cluster, ELASTIC_JOBS, name, lambda: kube.patch(ELASTIC_JOBS, namespace, name, body)
    )
    _raise_if_ended(read(patched, ElasticJob))
    return before


def _raise_if_ended(job: ElasticJob) -> None:
    if job.status.phase in ENDED:
        where = f"job {job.metadata.namespace}/{job.metadata.name}"
        raise JobEnded(f"{where} has ended, as {job.status.phase}")


async def delete_job(cluster: Cluster, name: str) -> None:
    """Delete a job and its objects. Raises `NoSuchObject`, `ClientError`."""
    await ask(
        cluster,
        ELASTIC_JOBS,
        name,
        lambda: cluster.kube.delete(ELASTIC_JOBS, cluster.namespace, name),
    )
