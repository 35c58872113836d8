"""`elasticjob dev`: the commands of the embedded cluster."""

from __future__ import annotations

import typer

from elasticjob_cli.common.arguments import with_typer
from elasticjob_cli.dev.cluster import down, status, up
from elasticjob_cli.dev.demo import demo
from elasticjob_cli.parameters import typer_parameter

dev = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
for _command in (up, down, status, demo):
    dev.command()(with_typer(_command, typer_parameter))
