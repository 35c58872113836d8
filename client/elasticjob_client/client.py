"""The Python client for programs that do not use `await`, and for notebooks.

Each method runs the asynchronous method of the same name (`aio.py`, `aio_job.py`), whose signature
and docstring it has.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import wraps
from os import PathLike
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from elasticjob_api.elasticjob import ElasticJob, Phase, Progress

from elasticjob_client.aio import AsyncClient
from elasticjob_client.aio_job import AsyncJob
from elasticjob_client.blocking import LoopThread
from elasticjob_client.errors import ClientError
from elasticjob_client.job_repr import job_html, job_text

P = ParamSpec("P")
T = TypeVar("T")
_REFRESH_SECONDS = 5.0
"""A notebook waits this long for the present job before it shows the last known one."""


def _of_client(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, AsyncJob]],
) -> Callable[Concatenate[Client, P], Job]:
    """Make a method of `Client` that runs a method of its `AsyncClient`."""

    @wraps(method)
    def run(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        return Job(client, client._run(method(client._client, *args, **kwargs)))

    return run


def _of_job(
    method: Callable[Concatenate[AsyncJob, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Job, P], T]:
    """Make a method of `Job` that runs a method of its `AsyncJob`."""

    @wraps(method)
    def run(job: Job, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return job._client._run(method(job._job, *args, **kwargs))

    return run


def _iterated(
    method: Callable[Concatenate[AsyncJob, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Job, P], Generator[T, None, None]]:
    """Make a method of `Job` that iterates over a method of its `AsyncJob`."""

    @wraps(method)
    def run(job: Job, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return job._client._loop.iterate(method(job._job, *args, **kwargs))

    return run


class Client:
    """A user's access to the jobs of a cluster.

    It uses a kubeconfig as `kubectl` finds it, or the service account of the pod in which it runs.
    Its connection ends with `close`, at the end of a `with` block, or with the program.
    """

    def __init__(
        self,
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | PathLike[str] | None = None,
    ) -> None:
        """Choose the cluster; see `AsyncClient`."""
        self._loop = LoopThread()
        self._client = AsyncClient(namespace=namespace, context=context, kubeconfig=kubeconfig)
        self._close = weakref.finalize(self, self._loop.stop, self._client.close)

    train = _of_client(AsyncClient.train)
    submit = _of_client(AsyncClient.submit)
    get = _of_client(AsyncClient.get)

    def list(self, *, all_namespaces: bool = False, phase: str | None = None) -> list[Job]:
        """Return the jobs, by namespace and name; see `AsyncClient.list`. Raises `ClientError`."""
        found = self._run(self._client.list(all_namespaces=all_namespaces, phase=phase))
        return [Job(self, job) for job in found]

    def close(self) -> None:
        """End the connection, which its jobs also use."""
        self._close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Job:
    """A job of a cluster.

    Every method raises `NoSuchObject` once the job is deleted, and `ClientError` if the API server
    refuses the request.
    """

    def __init__(self, client: Client, job: AsyncJob) -> None:
        """`Client` creates jobs; a job keeps its client open."""
        self._client = client
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
        """The job as the API server last returned it."""
        return self._job.last_seen

    @property
    def phase(self) -> Phase:
        """Its present phase, such as `Running`."""
        return self._client._run(self._job.phase())

    @property
    def progress(self) -> Progress | None:
        """The present step, total, samples a second and metrics; None before the first report."""
        return self._client._run(self._job.progress())

    def wait(self, until: str = "succeeded", *, timeout: float | None = None) -> Self:
        """Wait until the job has reached a phase or a step; see `AsyncJob.wait`.

        Raises `JobEnded`, `NotInTime`.
        """
        self._client._run(self._job.wait(until, timeout=timeout))
        return self

    refresh = _of_job(AsyncJob.refresh)
    scale = _of_job(AsyncJob.scale)
    remove = _of_job(AsyncJob.remove)
    suspend = _of_job(AsyncJob.suspend)
    resume = _of_job(AsyncJob.resume)
    stop = _of_job(AsyncJob.stop)
    delete = _of_job(AsyncJob.delete)
    logs = _iterated(AsyncJob.logs)
    plans = _of_job(AsyncJob.plans)
    events = _of_job(AsyncJob.events)
    report = _of_job(AsyncJob.report)
    history = _of_job(AsyncJob.history)

    def dashboard(self, *, port: int = 0) -> Dashboard:
        """Serve the job's dashboard at a port of this machine until it is closed, or the client is.

        Raises the errors of `AsyncJob.dashboard`.
        """
        client = self._client
        url, stack = client._run(client._client.keep(self._job.dashboard(port=port)))
        return Dashboard(url, lambda: client._run(stack.aclose()))

    def __repr__(self) -> str:
        return job_text("Job", self.last_seen)

    def _repr_html_(self) -> str:
        try:
            self._client._run(self._job.seen_within(_REFRESH_SECONDS))
        except ClientError as error:
            return job_html(self.last_seen, note=str(error))
        return job_html(self.last_seen)


class Dashboard:
    """A job's dashboard, served at a port of this machine. A notebook shows a link to it.

    Attributes:
        url: the page's address.
    """

    def __init__(self, url: str, close: Callable[[], None]) -> None:
        """`Job.dashboard` creates dashboards."""
        self.url = url
        self._end = close

    def close(self) -> None:
        """Stop serving it."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Dashboard {self.url}>"

    def _repr_html_(self) -> str:
        return f"<a href='{self.url}' target='_blank'>{self.url}</a>"
