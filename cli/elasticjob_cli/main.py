"""The command `elasticjob`, also `kubectl elasticjob`: the list of commands; each is a function in its own file."""

from __future__ import annotations

import typer

from elasticjob_cli.convert.command import convert
from elasticjob_cli.demo.command import demo
from elasticjob_cli.dev_cluster import down, status, up
from elasticjob_cli.query.command import query

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, help="Elastic deep-learning jobs on Kubernetes."
)
dev_commands = typer.Typer(
    no_args_is_help=True, help="A Kubernetes cluster on this machine, for trying out and testing."
)
app.add_typer(dev_commands, name="dev")

dev_commands.command()(up)
dev_commands.command()(down)
dev_commands.command()(status)
dev_commands.command()(demo)
app.command()(query)
app.command()(convert)


@app.callback()
def main() -> None:
    """Elastic deep-learning jobs on Kubernetes."""


if __name__ == "__main__":
    app()
