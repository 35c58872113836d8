"""`elasticjob doctor`.

What the commands need of the cluster and of its user, and what of it is missing.
"""

from __future__ import annotations

import asyncio
import json
from enum import StrEnum
from typing import Annotated

import msgspec
import typer
from elasticjob_client.cluster import Access
from elasticjob_client.diagnosis import OPERATOR_NAMESPACE, Finding, diagnose
from rich.table import Table
from rich.text import Text

from elasticjob_cli.jobs.options import Context, Kubeconfig, Namespace, reported
from elasticjob_cli.jobs.printing import console

_MARKS = {"Good": Text("✓", style="green"), "Bad": Text("✗", style="red"), "Note": Text("·")}


class Format(StrEnum):
    """How what is found is printed."""

    TABLE = "table"
    JSON = "json"


def doctor(
    operator_namespace: Annotated[
        str, typer.Option(help="Where the operator is.")
    ] = OPERATOR_NAMESPACE,
    kueue: Annotated[bool, typer.Option("--kueue", help="Also look for Kueue.")] = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="Format.")] = Format.TABLE,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say what is missing for these commands, and what to do.

    Server, definitions, operator, your rights. It changes nothing. Exit code 1: something is
    missing.
    """
    with reported():
        access = Access(kubeconfig, context, namespace)
        found = asyncio.run(diagnose(access, operator_namespace=operator_namespace, kueue=kueue))
    if output is Format.JSON:
        typer.echo(
            json.dumps(
                [msgspec.to_builtins(finding) for finding in found], indent=2, ensure_ascii=False
            )
        )
    else:
        console().print(_table(found))
    if any(finding.state == "Bad" for finding in found):
        raise typer.Exit(1)


def _table(found: list[Finding]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in found:
        said = Text(finding.message)
        if finding.remedy:
            said.append(f"\n→ {finding.remedy}", style="bold")
        table.add_row(_MARKS[finding.state], Text(finding.check), said)
    return table
