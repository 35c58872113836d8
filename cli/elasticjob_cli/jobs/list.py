"""`elasticjob list`. It imports what is slow only for what it lists."""

from __future__ import annotations

import os
from typing import Annotated

from elasticjob_client.access import Access

from elasticjob_cli.common.arguments import Option
from elasticjob_cli.common.cluster_options import for_cluster
from elasticjob_cli.common.formats import TABLES, ObjectFormat, Output
from elasticjob_cli.common.local_runs import base_folder, runs
from elasticjob_cli.common.streams import echo


@for_cluster
def list_(
    access: Access,
    phase: Annotated[str | None, Option(help="Only jobs in this phase, such as running.")] = None,
    selector: Annotated[
        str,
        Option("--selector", "-l", help="Only jobs with these labels, such as team=a."),
    ] = "",
    all_namespaces: Annotated[
        bool, Option("--all-namespaces", "-A", help="Jobs of all namespaces.")
    ] = False,
    local: Annotated[
        bool, Option("--local", help="Runs of `elasticjob run` on this machine.")
    ] = False,
    output: ObjectFormat = Output.TABLE,
) -> None:
    """List jobs with their phase, workers, step and rate."""
    if local:
        if output in TABLES and not runs(base_folder(os.environ)):
            echo("nothing runs here; `elasticjob run` begins it", err=True)
            return
        from elasticjob_cli.run.local import print_runs  # slow: it imports gRPC

        print_runs(output)
        return
    from elasticjob_cli.jobs.listing import print_jobs  # slow: it imports all about clusters

    print_jobs(access, phase=phase, selector=selector, all_namespaces=all_namespaces, output=output)
