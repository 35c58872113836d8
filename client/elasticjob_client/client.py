"""The Python client.

`aio.py` for programs without an event loop of their own, and for notebooks, which have one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from os import PathLike
from types import TracebackType
from typing import Any, Self

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, Phase, Progress
from elasticjob_api.scaleplan import ScalePlan

from elasticjob_client.aio import AsyncClient
from elasticjob_client.aio_job import AsyncJob
from elasticjob_client.blocking import LoopThread
from elasticjob_client.errors import ClientError
from elasticjob_client.job_page import job_html, job_text
from elasticjob_client.logs import LogLine
from elasticjob_client.records import Records
from elasticjob_client.related import Event

_PAGE_SECONDS = 5.0
"""How long a notebook waits for the job as it is now, before it shows the job as it was."""


class Client:
    """A user's access to the jobs of a cluster, by a kubeconfig as `kubectl` finds it, or by a pod's service account.

    Its connection ends with `close`, at the end of a `with` block, or with the program.
    """

    def __init__(
        self,
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | PathLike[str] | None = None,
    ) -> None:
        """Take note of the cluster; see `AsyncClient`."""
        self._loop = LoopThread()
        self._client = AsyncClient(namespace=namespace, context=context, kubeconfig=kubeconfig)
        self._close = weakref.finalize(self, self._loop.stop, self._client.close)

    def train(
        self,
        what: str | PathLike[str] | Callable[..., object],
        *,
        image: str,
        workers: int | tuple[int, int] = 1,
        gpus: int = 0,
        framework: str = "custom",
        args: Sequence[str] = (),
        fn_args: Sequence[object] = (),
        env: Mapping[str, str] | None = None,
        cpu: str | None = None,
        memory: str | None = None,
        name: str | None = None,
        dry_run: bool = False,
    ) -> Job:
        """Create a job in which each worker runs a script or calls a function.

        Args:
            what: path of a Python script, or a function; what it returns is not kept.
            image: of the containers; it needs Python, for a function of this one's minor version.
            workers: their number, or the fewest, with which it begins, and the most.
            gpus: of each worker.
            framework: whose environment each process gets: pytorch, jax, horovod, tensorflow, mxnet or custom.
            args: of a script.
            fn_args: of a function.
            env: variables.
            cpu: that each worker requests, such as "500m".
            memory: that each worker requests and is limited to, such as "4Gi".
            name: of the job; None: one that begins with the name of `what`.
            dry_run: let the API server check it, and create nothing.

        Raises:
            Invalid: the API server refuses fields of it.
            ClientError: the script cannot be read or the function not be pickled, it is too large, or the job is
                refused for another reason. Nothing is left.
        """
        made = self._client.train(
            what,
            image=image,
            workers=workers,
            gpus=gpus,
            framework=framework,
            args=args,
            fn_args=fn_args,
            env=env,
            cpu=cpu,
            memory=memory,
            name=name,
            dry_run=dry_run,
        )
        return Job(self, self._loop, self._loop.run(made))

    def submit(self, file: str | PathLike[str], *, dry_run: bool = False) -> Job:
        """Create the job of a job file (YAML) as it stands. Raises as `train` does."""
        return Job(self, self._loop, self._loop.run(self._client.submit(file, dry_run=dry_run)))

    def get(self, name: str) -> Job:
        """Return a job. Raises `NoSuchObject`, `ClientError`."""
        return Job(self, self._loop, self._loop.run(self._client.get(name)))

    def list(self, *, all_namespaces: bool = False, phase: str | None = None) -> list[Job]:
        """Return the jobs, by namespace and name; see `AsyncClient.list`. Raises `ClientError`."""
        found = self._loop.run(self._client.list(all_namespaces=all_namespaces, phase=phase))
        return [Job(self, self._loop, job) for job in found]

    def close(self) -> None:
        """End the connection, also that of its jobs."""
        self._close()

    def _serve(self, opened: AbstractAsyncContextManager[str]) -> Dashboard:
        url, stack = self._loop.run(self._client.keep(opened))
        return Dashboard(url, lambda: self._loop.run(stack.aclose()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Job:
    """A job of a cluster.

    Every method raises `NoSuchObject` once the job is deleted, and `ClientError` where the API
    server refuses it.
    """

    def __init__(self, client: Client, loop: LoopThread, job: AsyncJob) -> None:
        """Made by `Client`, which it keeps open."""
        self._client = client
        self._loop = loop
        self._job = job

    @property
    def name(self) -> str:
        """Its name."""
        return self._job.name

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self._job.namespace

    @property
    def last_seen(self) -> ElasticJob:
        """The job as the API server had it when it was last asked."""
        return self._job.last_seen

    @property
    def phase(self) -> Phase:
        """Its phase as it is now, such as `Running`."""
        return self._loop.run(self._job.phase())

    @property
    def progress(self) -> Progress | None:
        """How the training goes now: step, total, samples a second, metrics.

        None before the first report.
        """
        return self._loop.run(self._job.progress())

    def refresh(self) -> ElasticJob:
        """Return the job as it is now."""
        return self._loop.run(self._job.refresh())

    def wait(self, until: str = "succeeded", *, timeout: float | None = None) -> Self:
        """Wait until the job has reached something; see `AsyncJob.wait`.

        Raises `JobEnded`, `NotInTime`.
        """
        self._loop.run(self._job.wait(until, timeout=timeout))
        return self

    def scale(
        self,
        size: int | str,
        *,
        role: str = names.ROLE_WORKER,
        wait: bool = False,
        timeout: float | None = None,
    ) -> str:
        """Request another size, such as 4, "+2" or "-1"; see `AsyncJob.scale`.

        Raises `NotInTime`, `ClientError`.
        """
        return self._loop.run(self._job.scale(size, role=role, wait=wait, timeout=timeout))

    def remove(self, *pods: str, role: str = names.ROLE_WORKER, wait: bool = False) -> str:
        """Request that these pods leave, after they have saved; as `scale` does."""
        return self._loop.run(self._job.remove(*pods, role=role, wait=wait))

    def suspend(self) -> None:
        """Let its members save and its pods go. Raises `JobEnded` if it has ended."""
        self._loop.run(self._job.suspend())

    def resume(self) -> None:
        """Let it go on after `suspend`. Raises `JobEnded` if it has ended."""
        self._loop.run(self._job.resume())

    def stop(self) -> None:
        """End it for good, as Failed, after its members have saved.

        Raises `JobEnded` if it has ended.
        """
        self._loop.run(self._job.stop())

    def delete(self) -> None:
        """Delete it with all that is its own."""
        self._loop.run(self._job.delete())

    def logs(
        self,
        *,
        follow: bool = False,
        ranks: Sequence[int] = (),
        role: str | None = None,
        every: bool = False,
        tail: int | None = None,
    ) -> Generator[LogLine, None, None]:
        """Yield the lines that members write; by default the one with rank 0.

        See `AsyncJob.logs`.
        """
        return self._loop.iterate(
            self._job.logs(follow=follow, ranks=ranks, role=role, every=every, tail=tail)
        )

    def plans(self) -> list[ScalePlan]:
        """Return its ScalePlans, the oldest first: who wanted which size, and what came of it."""
        return self._loop.run(self._job.plans())

    def events(self) -> list[Event]:
        """Return what was said of the job and its pods, the oldest first.

        Most clusters keep events for an hour.
        """
        return self._loop.run(self._job.events())

    def report(self) -> dict[str, Any]:
        """Return the job's account, also after its end; see `AsyncJob.report`."""
        return self._loop.run(self._job.report())

    def history(self) -> Records:
        """Return the throughput over time: a DataFrame or a list of records.

        See `AsyncJob.history`.
        """
        return self._loop.run(self._job.history())

    def dashboard(self, *, port: int = 0) -> Dashboard:
        """Serve the job's dashboard at a port of this machine until it is closed, or the client is.

        Raises as `AsyncJob.dashboard` does.
        """
        return self._client._serve(self._job.dashboard(port=port))

    def __repr__(self) -> str:
        return job_text("Job", self.last_seen)

    def _repr_html_(self) -> str:
        try:
            self._loop.run(self._job.seen_within(_PAGE_SECONDS))
        except ClientError as error:
            return job_html(self.last_seen, note=str(error))
        return job_html(self.last_seen)


class Dashboard:
    """A job's dashboard, served at a port of this machine. A notebook shows a link to it.

    Attributes:
        url: of the page.
    """

    def __init__(self, url: str, close: Callable[[], None]) -> None:
        """Made by `Job.dashboard`."""
        self.url = url
        self._end = close

    def close(self) -> None:
        """Serve it no longer."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Dashboard {self.url}>"

    def _repr_html_(self) -> str:
        return f"<a href='{self.url}' target='_blank'>{self.url}</a>"
