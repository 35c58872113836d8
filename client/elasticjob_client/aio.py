"""The asynchronous Python client; `client.py` runs it for programs that do not use `await`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar

from elasticjob_api.elasticjob import ElasticJob

from elasticjob_client import functions, submission
from elasticjob_client.access import Access
from elasticjob_client.aio_job import AsyncJob
from elasticjob_client.arguments import check_text
from elasticjob_client.cluster import Cluster, open_cluster
from elasticjob_client.errors import ClientError, WrongArgument
from elasticjob_client.job_template import JobTemplate, check_fields
from elasticjob_client.jobs import find_job, list_jobs, read
from elasticjob_client.manifests import Program
from elasticjob_client.scripts import of_script
from elasticjob_client.submission import Submission
from elasticjob_client.template_options import completed
from elasticjob_client.waiting import parse_phase

T = TypeVar("T")


class AsyncClient:
    """A user's access to the jobs of a cluster.

    It uses a kubeconfig as `kubectl` finds it, or the service account of the pod in which it runs.
    It connects at its first use, and belongs to one event loop. Use it with `async with`, or call
    `close`.
    """

    def __init__(
        self,
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | PathLike[str] | None = None,
    ) -> None:
        """Choose the cluster.

        Args:
            namespace: the jobs' namespace; None for the context's.
            context: a context of the kubeconfig; None for its current one.
            kubeconfig: the path of the file; None for the file that kubectl would use.
        """
        for option, text in (("namespace", namespace), ("context", context)):
            if text is not None:
                check_text(option, text, "research")
        self._access = Access(None if kubeconfig is None else Path(kubeconfig), context, namespace)
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._cluster: Cluster | None = None

    async def train(
        self,
        /,
        what: str | PathLike[str] | Callable[..., object] | None = None,
        template: JobTemplate | None = None,
        *,
        args: Sequence[str] = (),
        fn_args: Sequence[object] = (),
        name: str | None = None,
        defaults: bool = True,
        dry_run: bool = False,
        **fields: Any,
    ) -> AsyncJob:
        """Create a job in which each worker runs a script or calls a function.

        Args:
            what: the path of a Python script, or a function, whose return value is dropped; one
                must be given.
            template: the pods: image, workers, GPUs and so on.
            args: arguments of a script.
            fn_args: arguments of a function.
            name: the job's name; None for one that begins with the name of `what`.
            defaults: use the namespace's defaults for what the template leaves open.
            dry_run: let the API server check the job, and create nothing.
            fields: those of `JobTemplate`, also in place of the template's.

        Raises:
            WrongArgument: an argument has a wrong name, type, form or bound.
            Invalid: the API server refuses fields of the job.
            ClientError: the script cannot be read, the function cannot be pickled, either is too
                large, or the API server refuses the job for another reason. Nothing is created.
        """
        check_fields(fields)
        if name is not None:
            check_text("name", name, "train-1")
        if not isinstance(template, JobTemplate | None):
            raise WrongArgument(
                f"template: {template!r:.40} is not a JobTemplate; give JobTemplate(image=…, …)"
            )
        template = replace(template or JobTemplate(), **fields)
        program = _program(what, args, fn_args, template)
        if defaults:
            template = (await completed(await self._connected(), template)).template
        submitted = submission.of_program(program, template, name=name)
        return await self._create(submitted, dry_run=dry_run)

    async def submit(self, file: str | PathLike[str], *, dry_run: bool = False) -> AsyncJob:
        """Create the job of a job file (YAML) unchanged. Raises the errors of `train`."""
        if not isinstance(file, str | PathLike):
            raise WrongArgument(f"file: {file!r:.40} is not a path; give that of a job file")
        return await self._create(submission.read_job_file(Path(file)), dry_run=dry_run)

    async def get(self, name: str) -> AsyncJob:
        """Return a job. Raises `NoSuchObject`, `ClientError`."""
        found = await find_job(await self._connected(), name, exact=True)
        return AsyncJob(self._connected, found)

    async def list(
        self, *, all_namespaces: bool = False, phase: str | None = None
    ) -> list[AsyncJob]:
        """Return the jobs, by namespace and name. Raises `ClientError`.

        Args:
            all_namespaces: return the jobs of all namespaces, not only of the client's.
            phase: return only jobs in this phase, such as "running".
        """
        if phase is not None:
            check_text("phase", phase, "running")
        chosen = None if phase is None else parse_phase(phase)
        cluster = await self._connected()
        found = await list_jobs(cluster, all_namespaces=all_namespaces, phase=chosen)
        return [AsyncJob(self._connected, read(job, ElasticJob)) for job in found]

    async def keep(self, opened: AbstractAsyncContextManager[T]) -> tuple[T, AsyncExitStack]:
        """Enter a context, which ends with this client or when the returned stack is closed."""
        stack = AsyncExitStack()
        entered = await stack.enter_async_context(opened)
        self._stack.push_async_callback(stack.aclose)
        return entered, stack

    async def close(self) -> None:
        """Close the connection; the next call opens another one."""
        self._cluster = None
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _create(self, wanted: Submission, *, dry_run: bool) -> AsyncJob:
        cluster = submission.in_namespace_of(
            await self._connected(), wanted, chosen=self._access.namespace
        )
        made: dict[str, Any] = await submission.submit(cluster, wanted, dry_run=dry_run)
        return AsyncJob(self._connected, read(made, ElasticJob))

    async def _connected(self) -> Cluster:
        async with self._opening:
            if self._cluster is None:
                self._cluster = await self._stack.enter_async_context(open_cluster(self._access))
            return self._cluster


def _program(
    what: str | PathLike[str] | Callable[..., object] | None,
    args: Sequence[str],
    fn_args: Sequence[object],
    template: JobTemplate,
) -> Program:
    if callable(what):
        if args:
            raise ClientError("args are for scripts; give fn_args to a function")
        return functions.program(what, fn_args, template.files)
    if not isinstance(what, str | PathLike):
        raise WrongArgument(
            f"what: {what!r:.40} is neither a script nor a function; give a path such as "
            "'train.py', or a function by its name, without a call"
        )
    if fn_args:
        raise ClientError("fn_args are for functions; give args to a script")
    return of_script(Path(what), args, template.files)
