"""`elasticjob submit`: creates a job from a job file, or from a Python script."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import yaml
from elasticjob_api.limits import MAX_RESTARTS
from elasticjob_api.meta import Json
from elasticjob_client.cluster import Access, Cluster
from elasticjob_client.errors import NoLogs, WrongArgument
from elasticjob_client.logs import LogOptions
from elasticjob_client.manifests import (
    MAX_GPUS,
    Training,
    parse_env,
    parse_workers,
)
from elasticjob_client.members import Choice
from elasticjob_client.submission import (
    Submission,
    in_namespace_of,
    of_job_file,
    of_script,
    read_job_file,
)
from elasticjob_client.submission import submit as create
from elasticjob_client.waiting import wait_for
from elasticjob_kube.resources import ELASTIC_JOBS

from elasticjob_cli.echo import echo
from elasticjob_cli.jobs.logs import print_logs
from elasticjob_cli.jobs.options import Framework, for_cluster, reported, run

_SCRIPT = ".py"


class DryRun(StrEnum):
    """The program that checks a job without creating it."""

    CLIENT = "client"
    SERVER = "server"


class Format(StrEnum):
    """The formats in which the created job is printed."""

    YAML = "yaml"
    NAME = "name"


@for_cluster
def submit(
    file: Annotated[
        str, typer.Argument(help="A job file (YAML; - for standard input), or a Python script.")
    ],
    access: Access,
    args: Annotated[
        list[str] | None, typer.Argument(help="Arguments of the script, after --.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Image with Python in which the script runs.")
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(help="Workers (4), or the least and the most (2:8).", metavar="N|MIN:MAX"),
    ] = None,
    framework: Annotated[Framework | None, typer.Option(help="Default: custom.")] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the job; default: the script's; if it is in use, with letters."),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(help="GPUs of each worker.", min=0, max=MAX_GPUS)
    ] = None,
    cpu: Annotated[
        str | None, typer.Option(help="CPU that each worker requests, such as 500m.")
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of each worker, such as 4Gi.")] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE; may be given more than once.")
    ] = None,
    restart_limit: Annotated[
        int | None,
        typer.Option(
            help="Restarts of a failed worker before the job fails; default: 3.",
            min=0,
            max=MAX_RESTARTS,
        ),
    ] = None,
    dry_run: Annotated[
        DryRun | None, typer.Option(help="Create nothing; server: let it check the job.")
    ] = None,
    output: Annotated[
        Format | None, typer.Option("--output", "-o", help="Print the job, or its name.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow rank 0, and end as the job does.")
    ] = False,
) -> None:
    """Create a job from a job file or a Python script.

    A script of at most 768 KiB is stored with the job. The image has the packages that it imports.
    With --follow, exit code 3: the job has failed; Ctrl-C leaves it running.
    """
    given = {
        "--image": image,
        "--workers": workers,
        "--framework": framework,
        "--name": name,
        "--gpus": gpus,
        "--cpu": cpu,
        "--memory": memory,
        "--env": env,
        "--restart-limit": restart_limit is not None,
        "arguments": args,
    }
    with reported():
        if Path(file).suffix == _SCRIPT:
            training = Training(
                command=args or (),
                image=_needed(image),
                workers=parse_workers(workers or "1"),
                framework=framework or "custom",
                gpus=gpus or 0,
                cpu=cpu,
                memory=memory,
                env=parse_env(env or ()),
                restart_limit=restart_limit,
            )
            submission = of_script(Path(file), training, name=name)
        else:
            submission = _of_file(file, [option for option, value in given.items() if value])
    if dry_run is DryRun.CLIENT:
        _print(submission.manifests(), output, dry_run)
        return

    async def work(cluster: Cluster) -> None:
        where = in_namespace_of(cluster, submission, chosen=access.namespace)
        made = await create(where, submission, dry_run=dry_run is not None)
        made["metadata"].pop("managedFields", None)
        _print([made], output, dry_run)
        if follow and dry_run is None:
            sys.stdout.flush()
            await _follow(where, made["metadata"]["name"])

    run(access, work)


async def _follow(cluster: Cluster, name: str) -> None:
    """Follow the logs of rank 0 until the job has ended. Raises `JobEnded` if it has failed."""
    try:
        await print_logs(cluster, name, Choice(), LogOptions(), follow=True)
    except NoLogs as error:
        echo(str(error), err=True)
    await wait_for(cluster, name, "succeeded")
    echo(f"job {name} is Succeeded", err=True)


def _needed(image: str | None) -> str:
    if not image:
        raise WrongArgument(
            "give --image: the script runs in a container of an image that has its packages"
        )
    return image


def _of_file(file: str, options: list[str]) -> Submission:
    """Return the submission of a job file. Raises `WrongArgument` for options of scripts."""
    if options:
        raise WrongArgument(
            f"{', '.join(options)}: only for scripts ({_SCRIPT}); a job file has its own fields"
        )
    if file == "-":
        return of_job_file(sys.stdin.read(), source="standard input")
    return read_job_file(Path(file))


def _print(made: list[Json], output: Format | None, dry_run: DryRun | None) -> None:
    metadata = made[0]["metadata"]
    name = metadata.get("name") or f"{metadata.get('generateName', '')}…"
    if output is Format.NAME:
        echo(f"{ELASTIC_JOBS.plural}.{ELASTIC_JOBS.group}/{name}")
    elif output is Format.YAML:
        echo(yaml.safe_dump_all(made, sort_keys=False, allow_unicode=True), nl=False)
    elif dry_run is DryRun.SERVER:
        echo(f"job {name} would be created (the API server accepts it)")
    elif dry_run is DryRun.CLIENT:
        echo(f"job {name} would be created (not shown to the API server)")
    else:
        echo(f"job {name} is submitted; elasticjob logs -f {name} follows it")
