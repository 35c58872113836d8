"""`elasticjob scale`, `suspend`, `resume`, `stop`, `delete` and `wait`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_client.access import Access
from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, NoSuchObject, WrongArgument
from elasticjob_client.jobs import delete_job, set_run_policy
from elasticjob_client.scaling import SizeChange, change_size, parse_size, wait_for_end
from elasticjob_client.waiting import parse_milestone, wait_for

from elasticjob_cli.common.arguments import Argument, Option
from elasticjob_cli.common.cluster_options import for_cluster
from elasticjob_cli.common.local_runs import hint, local_run
from elasticjob_cli.common.options import (
    ExactJob,
    ExactJobs,
    Job,
    Timeout,
    Wait,
    complete_pod,
    complete_role,
    reported,
    run,
    run_on_job,
)
from elasticjob_cli.common.streams import echo


@dataclass(frozen=True)
class _Outcome:
    """The milestone that `--wait` waits for, and what the command prints."""

    milestone: str
    reached: str
    requested: str
    already: str = ""


@for_cluster
def scale(
    job: Job,
    access: Access,
    size: Annotated[
        str | None,
        Argument(help="The new size (8), or how many more (+2) or less (-1).", metavar="SIZE"),
    ] = None,
    remove: Annotated[
        list[str] | None,
        Option(help="A pod to remove; may be given more than once.", autocompletion=complete_pod),
    ] = None,
    role: Annotated[
        str, Option(help="The role to scale.", autocompletion=complete_role)
    ] = names.ROLE_WORKER,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Change the number of a job's members.

    Members that leave save first. Changes are carried out one after the other. Without --wait the
    command only requests the change. A suspended job resumes with the new size.
    """
    with reported():
        change = _size_change(size, remove or [], role)
        local = local_run(job, access)
        if local is not None:
            from elasticjob_cli.run.local import scale_run

            echo(scale_run(local, change, wait=wait, timeout=timeout))
            return

    async def work(cluster: Cluster, found: ElasticJob) -> str:
        made = await change_size(cluster, found, change)
        if (request := made.request) is None:
            return made.done
        if not wait:
            return f"{made.done}; kubectl get {request.resource.plural} shows it"
        end = await wait_for_end(cluster, request, seconds=timeout)
        return f"{request.resource.kind} {request.name}: {end}"

    echo(run_on_job(access, job, work))


def _size_change(size: str | None, remove: list[str], role: str) -> SizeChange:
    if (size is None) == (not remove):
        raise WrongArgument("give either a size or --remove")
    if size is None:
        return SizeChange(role, pods=remove)
    return parse_size(size, role=role)


@for_cluster
def suspend(job: Job, access: Access, wait: Wait = False, timeout: Timeout = None) -> None:
    """Suspend a job: its members save, and its pods are deleted.

    The job keeps its size. When it is resumed, it continues from the saved state.
    """
    outcome = _Outcome("suspended", "is suspended", "will be suspended", "is suspended already")
    _change(access, job, {"suspend": True}, outcome, wait=wait, timeout=timeout)


@for_cluster
def resume(job: Job, access: Access, wait: Wait = False, timeout: Timeout = None) -> None:
    """Resume a suspended job."""
    outcome = _Outcome("running", "is running again", "will be resumed", "is not suspended")
    _change(access, job, {"suspend": False}, outcome, wait=wait, timeout=timeout)


@for_cluster
def stop(job: ExactJob, access: Access, wait: Wait = False, timeout: Timeout = None) -> None:
    """End a job for good, after its members have saved.

    The job is then Stopped, which is no failure, and is not retried.
    """
    with reported():
        local = local_run(job, access)
        if local is not None:
            from elasticjob_cli.run.local import stop_run

            echo(stop_run(local, wait=wait, timeout=timeout))
            return
    outcome = _Outcome("ended", "is stopped", "will be stopped")
    _change(access, job, {"stop": True}, outcome, wait=wait, timeout=timeout, exact=True)


@for_cluster
def delete(jobs: ExactJobs, access: Access) -> None:
    """Delete jobs and their pods.

    Checkpoints on storage of your own are kept.
    """

    async def work(cluster: Cluster) -> bool:
        all_deleted = True
        for job in dict.fromkeys(jobs):
            try:
                await delete_job(cluster, job)
            except ClientError as error:
                where = hint(job) if isinstance(error, NoSuchObject) else ""
                echo(f"error: {error}{where}", err=True)
                all_deleted = False
            else:
                echo(f"job {job} is deleted")
        return all_deleted

    if not run(access, work):
        raise SystemExit(1)


@for_cluster
def wait(
    job: Job,
    access: Access,
    milestone: Annotated[
        str,
        Option("--for", help="A phase (running, succeeded, …), ended, or step=N.", metavar="WHAT"),
    ] = "succeeded",
    timeout: Timeout = None,
) -> None:
    """Wait until a job has reached a phase or a step.

    Exit code 3: the job has ended without reaching it; 4: not in time.
    """
    with reported():
        local = local_run(job, access)
        if local is not None:
            from elasticjob_cli.run.showing import wait_for_run

            echo(asyncio.run(wait_for_run(local, milestone, seconds=timeout)))
            return
        parse_milestone(milestone)  # before the API server is asked
    reached = run_on_job(
        access,
        job,
        lambda cluster, found: wait_for(cluster, found.metadata.name, milestone, seconds=timeout),
    )
    steps = ""
    if reached.status.progress is not None:
        steps = f", step {reached.status.progress.steps}"
    echo(f"job {reached.metadata.name} is {reached.status.phase}{steps}")


def _change(
    access: Access,
    job: str,
    policy: dict[str, bool],
    outcome: _Outcome,
    *,
    wait: bool,
    timeout: float | None,
    exact: bool = False,
) -> None:
    """Set fields of a job's run policy, wait for the outcome if asked to, and print it.

    With `exact`, `job` is the whole name.
    """

    async def work(cluster: Cluster, found: ElasticJob) -> str:
        name = found.metadata.name
        before = await set_run_policy(cluster, name, **policy)
        if wait:
            await wait_for(cluster, name, outcome.milestone, seconds=timeout)
        was_suspended = before.status.phase == "Suspended"
        if policy.get("suspend") == before.spec.run_policy.suspend == was_suspended:
            return f"job {name} {outcome.already}"
        return f"job {name} {outcome.reached if wait else outcome.requested}"

    echo(run_on_job(access, job, work, exact=exact))
