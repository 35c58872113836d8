"""`elasticjob version`."""

from __future__ import annotations

from importlib import metadata

import typer


def version() -> None:
    """Print the version of this command."""
    typer.echo(f"elasticjob {metadata.version('elasticjob')}")
