"""Prints objects: as tables for people, as the API server has them for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TypeVar

import typer
import yaml
from elasticjob_api.meta import Json
from elasticjob_client.errors import ClientError
from elasticjob_client.jobs import read
from elasticjob_kube.resources import Resource
from rich.console import Console
from rich.table import Table

T = TypeVar("T")
_PIPE_WIDTH = 200


class Output(StrEnum):
    """How objects are printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


TABLES = (Output.TABLE, Output.WIDE)


def console() -> Console:
    """Return a console of the terminal's width, or one that is wide enough for what reads its lines.

    Brackets in names and messages are printed as they are: what others write styles nothing, and is
    no error.
    """
    return (
        Console(markup=False) if sys.stdout.isatty() else Console(markup=False, width=_PIPE_WIDTH)
    )


def readable(found: Sequence[Json], as_type: type[T]) -> Iterator[T]:
    """Yield the objects that this version understands.

    Of each other one a line on stderr says why not.
    """
    for each in found:
        try:
            yield read(each, as_type)
        except ClientError as error:
            typer.echo(f"warning: {error}", err=True)


def print_table(table: Table, *, none: str) -> None:
    """Print a table; one without lines is `none` on stderr."""
    if table.row_count:
        console().print(table)
    else:
        typer.echo(none, err=True)


def print_objects(resource: Resource, found: Sequence[Json], output: Output) -> None:
    """Print a list of objects as the API server has it, or their names as kubectl takes them."""
    if output is Output.NAME:
        for each in found:
            typer.echo(f"{resource.plural}.{resource.group}/{each['metadata']['name']}")
        return
    items = [{"apiVersion": resource.api_version, "kind": resource.kind, **each} for each in found]
    body = {"apiVersion": "v1", "kind": "List", "items": items}
    as_json = output is Output.JSON
    typer.echo(
        json.dumps(body, indent=2, ensure_ascii=False)
        if as_json
        else yaml.safe_dump(body, sort_keys=False)
    )
