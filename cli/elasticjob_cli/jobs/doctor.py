"""`elasticjob doctor`: checks what the commands need of the cluster and of its user."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated

import msgspec
from elasticjob_client.access import Access
from elasticjob_client.diagnosis import OPERATOR_NAMESPACE, Finding, diagnose

from elasticjob_cli.common.arguments import Option
from elasticjob_cli.common.cluster_options import for_cluster
from elasticjob_cli.common.formats import DataFormat, DataOutput
from elasticjob_cli.common.formatting import grid, plain_text
from elasticjob_cli.common.options import reported
from elasticjob_cli.common.streams import echo
from elasticjob_cli.common.tables import Table, show

_GPU_FILE = "gpu-check.json"
_WIDTH = 52
"""Of the names of what is measured; each line is shown when it is known."""
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
    gpu: Annotated[
        bool,
        Option(
            "--gpu",
            help="Check this machine instead: train with PyTorch on its GPUs, or without any on "
            "its CPU, for at most six minutes. Nothing but this machine is needed.",
        ),
    ] = False,
    python: Annotated[
        str | None, Option(help="With --gpu: a Python with PyTorch; default: this one.")
    ] = None,
    output: DataOutput = DataFormat.TABLE,
) -> None:
    """Check server, definitions, operator and your rights.

    It changes nothing, and prints a remedy for each problem. Exit code 1: something is missing.
    """
    if gpu:
        _check_gpu(python or sys.executable, output)
        return
    with reported():
        found = asyncio.run(diagnose(access, operator_namespace=operator_namespace, kueue=kueue))
    if output is DataFormat.JSON:
        objects = [msgspec.to_builtins(finding) for finding in found]
        echo(json.dumps(objects, indent=2, ensure_ascii=False))
    else:
        show(_table(found))
    if any(finding.state == "Bad" for finding in found):
        raise SystemExit(1)


def _check_gpu(python: str, output: DataFormat) -> None:
    """Check this machine: print each line when it is known, and write the same as JSON."""
    from elasticjob_cli.gpu.check import check_gpu

    measured = []
    with reported():
        for each in check_gpu(python):
            measured.append(msgspec.to_builtins(each))
            if output is DataFormat.TABLE:
                value = each.value if isinstance(each.value, str) else f"{each.value:.3g}"
                mark = _MARKS["Bad" if each.problem else "Good"]
                show(
                    grid([(mark, f"{each.check:{_WIDTH}}", each.problem or f"{value} {each.unit}")])
                )
    text = json.dumps(measured, indent=2, ensure_ascii=False)
    if output is DataFormat.JSON:
        echo(text)
    else:
        Path(_GPU_FILE).write_text(f"{text}\n")
        echo(f"\nThe same as JSON: {_GPU_FILE}")
    if any(each["problem"] for each in measured):
        raise SystemExit(1)


def _table(found: list[Finding]) -> Table:
    rows = []
    for finding in found:
        message = plain_text(finding.message)
        if finding.remedy:
            message.append(f"\n→ {finding.remedy}", style="bold")
        rows.append((_MARKS[finding.state], finding.check, message))
    return grid(rows)
