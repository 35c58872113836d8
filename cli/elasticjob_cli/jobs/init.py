"""`elasticjob init`: writes a job file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from elasticjob_client.errors import ClientError
from elasticjob_client.starter import starter
from elasticjob_client.template_options import template_of

from elasticjob_cli.common.local_runs import check_name
from elasticjob_cli.common.options import Framework, reported
from elasticjob_cli.common.streams import echo
from elasticjob_cli.jobs.template import Given, read_requirements, with_template


@with_template(without=("framework", "file"))
def init(
    framework: Annotated[Framework, typer.Option(help="Framework of the training.")],
    given: Given,
    name: Annotated[
        str, typer.Option(help="Name of the job, and of the file: NAME.yaml.")
    ] = "train",
) -> None:
    """Write a commented job file for a framework.

    The file is NAME.yaml in this folder, for `elasticjob submit`. An existing file is kept.
    """
    path = Path(f"{name}.yaml")
    with reported():
        check_name(name)
        template = template_of(read_requirements(given))
        text = starter(framework.value, name=name, template=template)
        try:
            with path.open("x") as file:
                file.write(text)
        except FileExistsError as error:
            raise ClientError(f"{path} exists; give another --name, or remove it") from error
        except OSError as error:
            raise ClientError(f"{path} cannot be written: {error.strerror or error}") from error
    echo(f"{path} is written; change image and command, then: elasticjob submit {path}")
