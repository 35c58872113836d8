"""`elasticjob run`: runs a job on this machine, without Kubernetes."""

from __future__ import annotations

from typing import Annotated

import typer
from elasticjob_api.frameworks import launchers

from elasticjob_cli.common.options import Framework, reported
from elasticjob_cli.run.launch import Wanted, launch, without_separator
from elasticjob_cli.run.sizes import initial_size


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            help="The training command; a file.py is run by this Python.", metavar="COMMAND..."
        ),
    ],
    number: Annotated[
        int | None,
        typer.Option(
            "-n", help="The first number of workers; default: the fewest of --workers, else 1."
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(help="Workers (4), or the fewest and the most (1:4).", metavar="N|MIN:MAX"),
    ] = None,
    framework: Annotated[
        Framework | None,
        typer.Option(
            help="The framework whose variables the workers get; default: pytorch for torchrun, "
            "else custom."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="The run's name for other commands, such as scale; default: the script's."
        ),
    ] = None,
    restart_limit: Annotated[
        int,
        typer.Option(help="The number of restarts of a program that crashes.", min=0, max=10_000),
    ] = 0,
) -> None:
    """Train on this machine, without a cluster.

    Master and workers are processes on this machine. `elasticjob scale NAME 4` in another terminal
    changes their number. Ctrl-C lets them save; a second one kills them. Exit code 0: the training
    has succeeded.
    """
    with reported():
        size, bounds = initial_size(number, workers)
        default = "pytorch" if launchers.launcher_of(command) else "custom"
        chosen = framework.value if framework else default
        code = launch(
            Wanted(
                without_separator(command),
                size,
                bounds,
                framework=chosen,
                name=name,
                restart_limit=restart_limit,
            )
        )
    raise typer.Exit(code)
