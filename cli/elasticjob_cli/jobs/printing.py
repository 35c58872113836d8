"""Prints objects: as tables for people, as the API server returns them for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TypeVar

import yaml
from elasticjob_api.meta import Json
from elasticjob_client.errors import ClientError
from elasticjob_client.jobs import read
from elasticjob_kube.resources import Resource
from rich.console import Console
from rich.table import Table

from elasticjob_cli.echo import echo

T = TypeVar("T")
_PIPE_WIDTH = 200


class Output(StrEnum):
    """The formats of objects."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


TABLES = (Output.TABLE, Output.WIDE)


def console() -> Console:
    """Return a console of the terminal's width, or a wide one if the output is not a terminal.

    Names and messages may contain brackets, which are not markup here.
    """
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(markup=False, width=width)


def readable(found: Sequence[Json], as_type: type[T]) -> Iterator[T]:
    """Yield the objects that this version understands, and warn of the others on stderr."""
    for each in found:
        try:
            yield read(each, as_type)
        except ClientError as error:
            echo(f"warning: {error}", err=True)


def print_table(table: Table, *, none: str) -> None:
    """Print a table, or `none` on stderr if the table has no lines."""
    if table.row_count:
        console().print(table)
    else:
        echo(none, err=True)


def print_objects(resource: Resource, found: Sequence[Json], output: Output) -> None:
    """Print objects as a List of the API, or their names as kubectl accepts them."""
    if output is Output.NAME:
        for each in found:
            plural = f"{each.get('kind', resource.kind).lower()}s"
            echo(f"{plural}.{resource.group}/{each['metadata']['name']}")
        return
    items = [{"apiVersion": resource.api_version, "kind": resource.kind, **each} for each in found]
    body = {"apiVersion": "v1", "kind": "List", "items": items}
    if output is Output.JSON:
        echo(json.dumps(body, indent=2, ensure_ascii=False))
    else:
        echo(yaml.safe_dump(body, sort_keys=False))
