"""`elasticjob scale`: creates the request for another size of a job, and waits for it."""

from __future__ import annotations

from typing import Annotated

import typer
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_client.cluster import Access, Cluster
from elasticjob_client.errors import WrongArgument
from elasticjob_client.scaling import SizeChange, parse_size, request_size, wait_for_end

from elasticjob_cli.common.completion import complete_pod, complete_role
from elasticjob_cli.common.local_runs import local_run
from elasticjob_cli.common.options import Job, Timeout, Wait, for_cluster, reported, run_on_job
from elasticjob_cli.common.streams import echo


@for_cluster
def scale(
    job: Job,
    access: Access,
    size: Annotated[
        str | None,
        typer.Argument(
            help="The new size (8), or how many more (+2) or less (-1).", metavar="SIZE"
        ),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            help="A pod to remove; may be given more than once.", autocompletion=complete_pod
        ),
    ] = None,
    role: Annotated[
        str, typer.Option(help="The role to scale.", autocompletion=complete_role)
    ] = names.ROLE_WORKER,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Change the number of a job's members.

    Members that leave save first. Changes are carried out one after the other. Without --wait the
    command only requests the change.
    """
    with reported():
        change = _change(size, remove or [], role)
        local = local_run(job, access.namespace, access.context, access.kubeconfig)
        if local is not None:
            from elasticjob_cli.run.local import scale_run

            echo(scale_run(local, change, wait=wait, timeout=timeout))
            return

    async def work(cluster: Cluster, found: ElasticJob) -> str:
        request = await request_size(cluster, found.metadata.name, change)
        name = f"{request.resource.kind} {request.name}"
        if not wait:
            return f"{name} is requested; kubectl get {request.resource.plural} shows it"
        return f"{name}: {await wait_for_end(cluster, request, seconds=timeout)}"

    echo(run_on_job(access, job, work))


def _change(size: str | None, remove: list[str], role: str) -> SizeChange:
    if (size is None) == (not remove):
        raise WrongArgument("give either a size or --remove")
    if size is None:
        return SizeChange(role, pods=remove)
    return parse_size(size, role=role)
