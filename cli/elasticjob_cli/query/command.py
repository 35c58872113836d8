"""`elasticjob query JOB`: what a job's master knows now, asked of the master itself rather than of the API server.

The status in Kubernetes is a summary a few seconds old; members, shards and the world are only known here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import grpc.aio
import typer
from elasticjob_api import names
from elasticjob_api.v1 import job_pb2, job_pb2_grpc
from elasticjob_kube.errors import KubeError, NoAccess, NotFound, Refused
from elasticjob_kube.session import Kube, connect
from kubernetes.aio.config import ConfigException, list_kube_config_contexts
from rich.console import Console, RenderableType
from rich.live import Live

from elasticjob_cli.master_client import MasterEndpoint, MasterUnavailable, find_master
from elasticjob_cli.query import topics
from elasticjob_cli.query.job_view import Snapshot, as_json, as_text
from elasticjob_cli.query.topics import QUESTIONS, Topic

CALL_SECONDS = 5.0
_RECONNECT_SECONDS = 1.0
_WIDTH_OF_A_PIPE = 200


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"


class QueryError(Exception):
    """No answer; the message says why and what to do."""


@dataclass(frozen=True)
class _Target:
    job: str
    namespace: str
    address: str | None


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
    """Ask a job's master: phase, world, members and shards; or its members, progress, history or plans in detail."""
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
        target = _Target(job, namespace or _present_namespace(kubeconfig), address)
        async with connect(user_agent="elasticjob", kubeconfig=kubeconfig, connections=2) as kube:
            if watch:
                await _watch(kube, target, topic, output)
            else:
                _print(await _ask(await _access(kube, target), target, topic), output)
    except (NoAccess, ConfigException) as error:
        raise QueryError(f"no usable kubeconfig: {error}; set KUBECONFIG or give --kubeconfig") from error


def _present_namespace(kubeconfig: Path | None) -> str:
    """Return the namespace kubectl would use."""
    _, active = list_kube_config_contexts(str(kubeconfig) if kubeconfig else None)
    return str(active["context"].get("namespace") or "default")


async def _access(kube: Kube, target: _Target) -> MasterEndpoint:
    """Find the master, or say in the user's terms why not."""
    where = f"{target.namespace}/{target.job}"
    try:
        return await find_master(kube, target.namespace, target.job, address=target.address)
    except NotFound as error:
        hint = f"`kubectl get ej -n {target.namespace}` lists the jobs there are"
        raise QueryError(f"job {where}: {error.message}; {hint}") from error
    except Refused as error:
        need = f"reading a job's master needs `get` on the ElasticJob and on Secret {names.master_service(target.job)}"
        raise QueryError(f"job {where}: {error.message}; {need}") from error
    except KubeError as error:
        raise QueryError(f"job {where}: {error.message}") from error


@asynccontextmanager
async def _master(access: MasterEndpoint, target: _Target) -> AsyncIterator[job_pb2_grpc.JobServiceAsyncStub]:
    """Open the master's job service; what goes wrong inside becomes a `QueryError`."""
    try:
        async with access.channel() as channel:
            yield job_pb2_grpc.JobServiceStub(channel)
    except grpc.aio.AioRpcError as error:
        raise QueryError(_why(error, access, target)) from error


def _why(error: grpc.aio.AioRpcError, access: MasterEndpoint, target: _Target) -> str:
    where = f"the master of {target.namespace}/{target.job} at {access.address}"
    match error.code():
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
            service = names.master_service(target.job)
            return (
                f"{where} can't be reached: {error.details()}\n"
                f"From outside the cluster, forward its port and ask there:\n"
                f"  kubectl port-forward -n {target.namespace} service/{service} {names.GRPC_PORT}\n"
                f"  elasticjob query {target.job} -n {target.namespace} --address 127.0.0.1:{names.GRPC_PORT}"
            )
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return f"{where} does not accept this job's token; does the address belong to another job?"
    return f"{where} answered {error.code().name}: {error.details()}"


async def _ask(access: MasterEndpoint, target: _Target, topic: Topic) -> _Answer:
    if topic is Topic.STATUS:
        return _shown(await _snapshot(access, target))
    question = QUESTIONS[topic]
    async with _master(access, target) as master:
        get = getattr(master, f"Get{question.name}")
        answer = await get(question.request("Get"), metadata=access.metadata, timeout=CALL_SECONDS)
    return _Answer(question.text(answer), topics.as_json(answer))


def _shown(snapshot: Snapshot) -> _Answer:
    return _Answer(as_text(snapshot), as_json(snapshot))


async def _snapshot(access: MasterEndpoint, target: _Target, status: job_pb2.JobStatus | None = None) -> Snapshot:
    """Ask for all there is to show; `status` is given when a watch has just told it."""
    async with _master(access, target) as master:
        told, limit = access.metadata, CALL_SECONDS
        if status is None:
            status = await master.GetStatus(job_pb2.GetStatusRequest(), metadata=told, timeout=limit)
        members = await master.GetMembers(job_pb2.GetMembersRequest(), metadata=told, timeout=limit)
        world = await master.GetWorld(job_pb2.GetWorldRequest(), metadata=told, timeout=limit)
    return Snapshot(status=status, members=tuple(members.members), world=world)


async def _watch(kube: Kube, target: _Target, topic: Topic, output: Output) -> None:
    """Show every change until the job has ended; a relaunched master is found again."""
    console = _console()
    seen = False
    adds = topic in QUESTIONS and QUESTIONS[topic].adds
    redraw = console.is_terminal and output is Output.TABLE and not adds
    with Live(console=console, auto_refresh=False) if redraw else nullcontext() as live:
        while True:
            try:
                access = await _access(kube, target)
                async for answer in _changes(access, target, topic):
                    seen = True
                    if live is not None:
                        live.update(answer.text, refresh=True)
                    else:
                        _print(answer, output)
            except MasterUnavailable as error:
                if not seen:
                    raise
                typer.echo(str(error), err=True)
                return
            except QueryError:
                if not seen:
                    raise
            await asyncio.sleep(_RECONNECT_SECONDS)


async def _changes(access: MasterEndpoint, target: _Target, topic: Topic) -> AsyncIterator[_Answer]:
    async with _master(access, target) as master:
        if topic is Topic.STATUS:
            async for status in master.WatchStatus(job_pb2.WatchStatusRequest(), metadata=access.metadata):
                yield _shown(await _snapshot(access, target, status))
            return
        question = QUESTIONS[topic]
        watch = getattr(master, f"Watch{question.name}")
        async for answer in watch(question.request("Watch"), metadata=access.metadata):
            yield _Answer(question.text(answer), topics.as_json(answer))


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=_WIDTH_OF_A_PIPE)


def _print(answer: _Answer, output: Output) -> None:
    if output is Output.JSON:
        typer.echo(answer.json)
    else:
        _console().print(answer.text)
