"""`elasticjob doctor`: checks what the commands need of the cluster and of its user."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import msgspec
from elasticjob_client.cluster import Access
from elasticjob_client.diagnosis import OPERATOR_NAMESPACE, Finding, diagnose

from elasticjob_cli.common.arguments import Option
from elasticjob_cli.common.formatting import grid, plain_text
from elasticjob_cli.common.options import for_cluster, reported
from elasticjob_cli.common.printing import DataFormat, DataOutput
from elasticjob_cli.common.streams import echo
from elasticjob_cli.common.tables import Table, show

_MARKS = {
    "Good": plain_text("✓", style="green"),
    "Bad": plain_text("✗", style="red"),
    "Note": plain_text("·"),
}


@for_cluster
def doctor(
    access: Access,
    operator_namespace: Annotated[
        str, Option(help="Namespace of the operator.")
    ] = OPERATOR_NAMESPACE,
    kueue: Annotated[bool, Option("--kueue", help="Also check Kueue.")] = False,
    output: DataOutput = DataFormat.TABLE,
) -> None:
    """Check server, definitions, operator and your rights.

    It changes nothing, and prints a remedy for each problem. Exit code 1: something is missing.
    """
    with reported():
        found = asyncio.run(diagnose(access, operator_namespace=operator_namespace, kueue=kueue))
    if output is DataFormat.JSON:
        objects = [msgspec.to_builtins(finding) for finding in found]
        echo(json.dumps(objects, indent=2, ensure_ascii=False))
    else:
        show(_table(found))
    if any(finding.state == "Bad" for finding in found):
        raise SystemExit(1)


def _table(found: list[Finding]) -> Table:
    rows = []
    for finding in found:
        message = plain_text(finding.message)
        if finding.remedy:
            message.append(f"\n→ {finding.remedy}", style="bold")
        rows.append((_MARKS[finding.state], finding.check, message))
    return grid(rows)
