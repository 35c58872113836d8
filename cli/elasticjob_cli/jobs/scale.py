"""`elasticjob scale`: another size of a job, by an object whose status tells how it went."""

from __future__ import annotations

from typing import Annotated

import typer
from elasticjob_api import names
from elasticjob_client.cluster import Access, Cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.scaling import (
    ScaleRequest,
    SizeChange,
    parse_size,
    request_size,
    wait_for_end,
)

from elasticjob_cli.jobs.completion import complete_pod
from elasticjob_cli.jobs.options import (
    Context,
    Job,
    Kubeconfig,
    Namespace,
    Role,
    Timeout,
    Wait,
    reported,
    run,
)
from elasticjob_cli.run.lookup import local_run


def scale(
    job: Job,
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
    role: Role = names.ROLE_WORKER,
    wait: Wait = False,
    timeout: Timeout = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Change the number of a job's members.

    Those who leave save first. Changes are carried out one after the other; without --wait the
    command ends once the change is requested.
    """
    with reported():
        local = local_run(job, namespace, context, kubeconfig)
        if local is not None:
            from elasticjob_cli.run.local import scale_run

            typer.echo(
                scale_run(local, _change(size, remove or [], role), wait=wait, timeout=timeout)
            )
            return

    async def work(cluster: Cluster) -> tuple[ScaleRequest, str]:
        request = await request_size(cluster, job, _change(size, remove or [], role))
        return request, await wait_for_end(cluster, request, seconds=timeout) if wait else ""

    request, message = run(Access(kubeconfig, context, namespace), work)
    name = f"{request.resource.kind} {request.name}"
    typer.echo(
        f"{name}: {message}"
        if wait
        else f"{name} is requested; kubectl get {request.resource.plural} shows it"
    )


def _change(size: str | None, remove: list[str], role: str) -> SizeChange:
    if (size is None) == (not remove):
        raise ClientError("give either a size or --remove")
    return parse_size(size, role=role) if size is not None else SizeChange(role, pods=remove)
