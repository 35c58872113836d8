"""`elasticjob dev`: the commands of the embedded cluster."""

from __future__ import annotations

import typer

from elasticjob_cli.demo.command import demo
from elasticjob_cli.dev_cluster import down, status, up

dev = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
for _command in (up, down, status, demo):
    dev.command()(_command)
