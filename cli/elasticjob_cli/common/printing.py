"""Prints objects: as tables for people, as the API server returns them for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TypeVar

from elasticjob_api.meta import Json
from elasticjob_client.errors import ClientError
from elasticjob_client.jobs import read
from elasticjob_client.related import of_kind
from elasticjob_kube.resources import Resource

from elasticjob_cli.common.formats import Output
from elasticjob_cli.common.streams import echo
from elasticjob_cli.common.tables import Table, show

T = TypeVar("T")
_WRITERS = "managedFields"
"""A list of the fields that each client wrote, which kubectl does not show either."""


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
        show(table)
    else:
        echo(none, err=True)


def print_objects(resource: Resource, found: Sequence[Json], output: Output) -> None:
    """Print objects as a List of the API, or their names as kubectl accepts them.

    `resource`: the kind of the objects that name none, as those of a list.
    """
    if output is Output.NAME:
        for each in found:
            plural = f"{each.get('kind', resource.kind).lower()}s"
            echo(f"{plural}.{resource.group}/{each['metadata']['name']}")
        return
    items = [of_kind(resource, each) for each in found]
    for each in items:
        metadata = {key: value for key, value in each["metadata"].items() if key != _WRITERS}
        each["metadata"] = metadata
    print_data({"apiVersion": "v1", "kind": "List", "items": items}, json_=output is Output.JSON)


def print_data(body: Json | list[Json], *, json_: bool) -> None:
    """Print data as JSON or as YAML."""
    if json_:
        echo(json.dumps(body, indent=2, ensure_ascii=False))
    else:
        import yaml  # slow, and tables need none

        echo(yaml.safe_dump(body, sort_keys=False))
