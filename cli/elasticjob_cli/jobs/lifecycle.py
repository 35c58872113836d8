"""`elasticjob suspend`, `resume`, `stop`, `delete` and `wait`: a job's life."""

from __future__ import annotations

from typing import Annotated

import typer
from elasticjob_client.cluster import Access, Cluster
from elasticjob_client.jobs import delete_job, set_run_policy
from elasticjob_client.milestones import wait_for

from elasticjob_cli.jobs.options import (
    Context,
    Job,
    Kubeconfig,
    Namespace,
    Timeout,
    Wait,
    reported,
    run,
)
from elasticjob_cli.run.lookup import local_run


def suspend(
    job: Job,
    wait: Wait = False,
    timeout: Timeout = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Suspend a job: its members save, and its pods go.

    It keeps its size, and goes on from what it has saved when it is resumed.
    """
    access = Access(kubeconfig, context, namespace)
    _set_and_wait(access, job, {"suspend": True}, "suspended" if wait else None, timeout)
    typer.echo(f"job {job} {'is' if wait else 'will be'} suspended")


def resume(
    job: Job,
    wait: Wait = False,
    timeout: Timeout = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Let a suspended job go on."""
    access = Access(kubeconfig, context, namespace)
    _set_and_wait(access, job, {"suspend": False}, "running" if wait else None, timeout)
    typer.echo(f"job {job} {'is running again' if wait else 'will be resumed'}")


def stop(
    job: Job,
    wait: Wait = False,
    timeout: Timeout = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """End a job for good, after its members have saved.

    It is Failed then, with the reason Stopped, and is not retried.
    """
    with reported():
        local = local_run(job, namespace, context, kubeconfig)
        if local is not None:
            from elasticjob_cli.run.local import stop_run

            typer.echo(stop_run(local, wait=wait, timeout=timeout))
            return
    access = Access(kubeconfig, context, namespace)
    _set_and_wait(access, job, {"stop": True}, "ended" if wait else None, timeout)
    typer.echo(f"job {job} {'is' if wait else 'will be'} stopped")


def delete(
    job: Job, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None
) -> None:
    """Delete a job and its pods.

    What it has saved on storage of your own stays.
    """
    run(Access(kubeconfig, context, namespace), lambda cluster: delete_job(cluster, job))
    typer.echo(f"job {job} is deleted")


def wait(
    job: Job,
    milestone: Annotated[
        str,
        typer.Option(
            "--for", help="A phase (running, succeeded, …), ended, or step=N.", metavar="WHAT"
        ),
    ] = "succeeded",
    timeout: Timeout = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Wait until a job has reached a phase or a step.

    Exit code 3: it has ended without it; 4: not in time.
    """
    access = Access(kubeconfig, context, namespace)
    reached = run(access, lambda cluster: wait_for(cluster, job, milestone, seconds=timeout))
    steps = f", step {reached.status.progress.steps}" if reached.status.progress else ""
    typer.echo(f"job {job} is {reached.status.phase}{steps}")


def _set_and_wait(
    access: Access, job: str, fields: dict[str, bool], until: str | None, timeout: float | None
) -> None:
    async def work(cluster: Cluster) -> None:
        await set_run_policy(cluster, job, **fields)
        if until is not None:
            await wait_for(cluster, job, until, seconds=timeout)

    run(access, work)
