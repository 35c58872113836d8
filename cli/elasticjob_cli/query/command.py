"""`elasticjob query JOB`: requests a job's state from its master, not from the API server.

The status in Kubernetes is a summary a few seconds old; only the master has members, shards and the world.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import grpc.aio
import typer
from elasticjob_api import names
from elasticjob_api.v1 import job_pb2, job_pb2_grpc
from elasticjob_kube.errors import KubeError, NoAccess, NotFound, Refused
from elasticjob_kube.kubeconfig import namespace as current_namespace
from elasticjob_kube.session import Kube, connect
from rich.console import RenderableType
from rich.live import Live

from elasticjob_cli.jobs.printing import console
from elasticjob_cli.master_client import MasterEndpoint, MasterUnavailable, find_master
from elasticjob_cli.query import topics
from elasticjob_cli.query.job_view import JobSnapshot, as_json, as_text
from elasticjob_cli.query.topics import TOPIC_QUERIES, Topic

CALL_SECONDS = 5.0
_RECONNECT_SECONDS = 1.0


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"


class QueryError(Exception):
    """The query failed; the message says why and what to do."""


class _TokenRefused(QueryError):
    """The master does not know the token: it is another job's, or one of an earlier version without a token to read."""


@dataclass(frozen=True)
class _JobReference:
    job: str
    namespace: str
    address: str | None
    own_token: bool = False


@dataclass(frozen=True)
class _Answer:
    """An answer as people and as programs read it."""

    text: RenderableType
    json: str


def query(
    job: Annotated[str, typer.Argument(help="Name of the ElasticJob.")],
    topic: Annotated[Topic, typer.Argument(help="What to show; default: the whole job.")] = Topic.STATUS,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Its namespace; default: the kubeconfig's.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="HOST:PORT of the master, such as a forwarded port; default: as in the status.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until the job has ended.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Format; json with --watch: one a line.")] = (
        Output.TABLE
    ),
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig file; default: $KUBECONFIG.")] = None,
) -> None:
    """Ask a job's master: world, members, shards, auto-scaling.

    It knows more, and sooner, than the status in Kubernetes. A topic shows one of these in detail.
    """
    try:
        asyncio.run(_query(job, topic, namespace, address, watch=watch, output=output, kubeconfig=kubeconfig))
    except (QueryError, MasterUnavailable) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _query(
    job: str,
    topic: Topic,
    namespace: str | None,
    address: str | None,
    *,
    watch: bool,
    output: Output,
    kubeconfig: Path | None,
) -> None:
    try:
        reference = _JobReference(job, namespace or current_namespace(kubeconfig, None), address)
        async with connect(user_agent="elasticjob", kubeconfig=kubeconfig, connections=2) as kube:
            show = _watch if watch else _show
            try:
                await show(kube, reference, topic, output)
            except _TokenRefused:
                await show(kube, replace(reference, own_token=True), topic, output)
    except NoAccess as error:
        raise QueryError(f"no usable kubeconfig: {error}; set KUBECONFIG or give --kubeconfig") from error


async def _show(kube: Kube, reference: _JobReference, topic: Topic, output: Output) -> None:
    _print(await _fetch(await _locate_master(kube, reference), reference, topic), output)


async def _locate_master(kube: Kube, reference: _JobReference) -> MasterEndpoint:
    """Find the job's master; an error becomes a `QueryError` that says what the user can do."""
    where = f"{reference.namespace}/{reference.job}"
    try:
        place = (reference.namespace, reference.job)
        return await find_master(kube, *place, address=reference.address, own_token=reference.own_token)
    except NotFound as error:
        hint = f"`kubectl get ej -n {reference.namespace}` lists the jobs there are"
        raise QueryError(f"job {where}: {error.message}; {hint}") from error
    except Refused as error:
        need = f"reading a job's master needs `get` on the ElasticJob and on Secret {names.query_secret(reference.job)}"
        raise QueryError(f"job {where}: {error.message}; {need}") from error
    except KubeError as error:
        raise QueryError(f"job {where}: {error.message}") from error


@asynccontextmanager
async def _job_service(
    endpoint: MasterEndpoint, reference: _JobReference
) -> AsyncIterator[job_pb2_grpc.JobServiceAsyncStub]:
    """Open a connection to the master's job service; a gRPC error inside the block becomes a `QueryError`."""
    try:
        async with endpoint.channel() as channel:
            yield job_pb2_grpc.JobServiceStub(channel)
    except grpc.aio.AioRpcError as error:
        refused = error.code() is grpc.StatusCode.UNAUTHENTICATED and not reference.own_token
        problem = _TokenRefused if refused else QueryError
        raise problem(_error_message(error, endpoint, reference)) from error


def _error_message(error: grpc.aio.AioRpcError, endpoint: MasterEndpoint, reference: _JobReference) -> str:
    where = f"the master of {reference.namespace}/{reference.job} at {endpoint.address}"
    match error.code():
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
            service = names.master_service(reference.job)
            return (
                f"{where} can't be reached: {error.details()}\n"
                f"From outside the cluster, forward its port and ask there:\n"
                f"  kubectl port-forward -n {reference.namespace} service/{service} {names.GRPC_PORT}\n"
                f"  elasticjob query {reference.job} -n {reference.namespace} --address 127.0.0.1:{names.GRPC_PORT}"
            )
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return f"{where} does not accept this job's token; does the address belong to another job?"
    return f"{where} answered {error.code().name}: {error.details()}"


async def _fetch(endpoint: MasterEndpoint, reference: _JobReference, topic: Topic) -> _Answer:
    if topic is Topic.STATUS:
        return _status_answer(await _snapshot(endpoint, reference))
    topic_query = TOPIC_QUERIES[topic]
    async with _job_service(endpoint, reference) as master:
        get = getattr(master, f"Get{topic_query.name}")
        answer = await get(topic_query.request("Get"), metadata=endpoint.metadata, timeout=CALL_SECONDS)
    return _Answer(topic_query.render(answer), topics.as_json(answer))


def _status_answer(snapshot: JobSnapshot) -> _Answer:
    return _Answer(as_text(snapshot), as_json(snapshot))


async def _snapshot(
    endpoint: MasterEndpoint, reference: _JobReference, status: job_pb2.JobStatus | None = None
) -> JobSnapshot:
    """Fetch status, members, world and auto-scaling; `status` is given when a watch has just delivered it."""
    async with _job_service(endpoint, reference) as master:
        metadata, timeout = endpoint.metadata, CALL_SECONDS
        if status is None:
            status = await master.GetStatus(job_pb2.GetStatusRequest(), metadata=metadata, timeout=timeout)
        members = await master.GetMembers(job_pb2.GetMembersRequest(), metadata=metadata, timeout=timeout)
        world = await master.GetWorld(job_pb2.GetWorldRequest(), metadata=metadata, timeout=timeout)
        autoscaling = await _autoscaling(master, endpoint)
    return JobSnapshot(status, tuple(members.members), world, autoscaling)


async def _autoscaling(master: job_pb2_grpc.JobServiceAsyncStub, endpoint: MasterEndpoint) -> job_pb2.Autoscaling:
    """Fetch what the auto-scaler knows; nothing from a master of an earlier version, which cannot say it."""
    try:
        return await master.GetAutoscaling(
            job_pb2.GetAutoscalingRequest(), metadata=endpoint.metadata, timeout=CALL_SECONDS
        )
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
            raise
        return job_pb2.Autoscaling()


async def _watch(kube: Kube, reference: _JobReference, topic: Topic, output: Output) -> None:
    """Show every change until the job has ended; reconnect when the master was relaunched."""
    screen = console()
    answered = False
    incremental = topic in TOPIC_QUERIES and TOPIC_QUERIES[topic].incremental
    redraw = screen.is_terminal and output is Output.TABLE and not incremental
    with Live(console=screen, auto_refresh=False) if redraw else nullcontext() as live:
        while True:
            try:
                endpoint = await _locate_master(kube, reference)
                async for answer in _watch_answers(endpoint, reference, topic):
                    answered = True
                    if live is not None:
                        live.update(answer.text, refresh=True)
                    else:
                        _print(answer, output)
            except MasterUnavailable as error:
                if not answered:
                    raise
                typer.echo(str(error), err=True)
                return
            except QueryError:
                if not answered:
                    raise
            await asyncio.sleep(_RECONNECT_SECONDS)


async def _watch_answers(endpoint: MasterEndpoint, reference: _JobReference, topic: Topic) -> AsyncIterator[_Answer]:
    async with _job_service(endpoint, reference) as master:
        if topic is Topic.STATUS:
            async for status in master.WatchStatus(job_pb2.WatchStatusRequest(), metadata=endpoint.metadata):
                yield _status_answer(await _snapshot(endpoint, reference, status))
            return
        topic_query = TOPIC_QUERIES[topic]
        watch = getattr(master, f"Watch{topic_query.name}")
        async for answer in watch(topic_query.request("Watch"), metadata=endpoint.metadata):
            yield _Answer(topic_query.render(answer), topics.as_json(answer))


def _print(answer: _Answer, output: Output) -> None:
    if output is Output.JSON:
        typer.echo(answer.json)
    else:
        console().print(answer.text)
