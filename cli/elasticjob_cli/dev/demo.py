"""`elasticjob dev demo`: starts a cluster and the operator, runs the scenario, and cleans up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from elasticjob_kube.session import connect
from elasticjob_localcluster import cluster as clusters
from elasticjob_localcluster.cluster import Cluster
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.state_directory import state_dir
from rich.console import Console

from elasticjob_cli.common.arguments import Option
from elasticjob_cli.dev.cluster import StateOption, reported_errors
from elasticjob_cli.dev.observer import JobObserver
from elasticjob_cli.dev.operator import OPERATOR, apply_definitions, check_source, start_operator
from elasticjob_cli.dev.scenario import DemoScenario
from elasticjob_cli.dev.timeline import Kubectl, NotObserved, Timeline

NAMESPACE = "default"
JOB = "digits"
CHECKPOINTS = Path("/tmp/elasticjob-digits")  # noqa: S108 - as in examples/digits.yaml


def demo(
    source: Annotated[
        Path,
        Option(
            metavar="DIR",
            help="A checkout of the project, for its definitions, policies and examples.",
        ),
    ] = Path(),
    keep: Annotated[
        bool, Option("--keep", help="Keep the cluster running, and print commands to try.")
    ] = False,
    state: StateOption = None,
) -> None:
    """Train an elastic job end to end on the embedded cluster.

    Exit code 0: every step was observed.
    """
    with reported_errors():
        # The API server refuses watches of new kinds at first; they are retried.
        logging.getLogger("elasticjob_kube").setLevel(logging.ERROR)
        directory = state or state_dir(os.environ).with_name("demo")
        timeline = Timeline(Console())
        check_source(source, "examples/digits.yaml")
        if clusters.find(directory) is not None:
            timeline.heading("An earlier demo's cluster is removed")
            clusters.down(directory)
        cluster = _start(directory, timeline)
        kept = False
        checkpoints = _Checkpoints()
        try:
            asyncio.run(_run(cluster, source, timeline, checkpoints))
            kept = keep
        except NotObserved as error:
            detail = f"the end of the operator's log:\n{cluster.log_tail(OPERATOR, 15)}"
            raise LocalClusterError(f"not observed: {error}", detail=detail) from None
        finally:
            if not kept:
                cluster.down()
                checkpoints.remove()
        timeline.summary()
        if kept:
            _print_examples(cluster, source)


def _start(directory: Path, timeline: Timeline) -> Cluster:
    timeline.heading("A Kubernetes control plane and a node, on this machine")
    began = time.monotonic()
    cluster = clusters.up(directory)
    timeline.done(
        "cluster up",
        since=began,
        proof=f"API server ready, node ready: https://127.0.0.1:{cluster.port}",
    )
    timeline.figures["embedded cluster up (goal ≤ 10 s warm)"] = (
        f"{timeline.steps[-1].seconds:.1f} s"
    )
    return cluster


@dataclass
class _Checkpoints:
    """The folder of the job's checkpoints, which the demo removes."""

    folder: Path | None = None

    def remove(self) -> None:
        """Remove the folder, if the job was created."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.folder.parent.rmdir()  # unless another job uses it


async def _run(
    cluster: Cluster, source: Path, timeline: Timeline, checkpoints: _Checkpoints
) -> None:
    timeline.heading("Definitions and operator")
    began = time.monotonic()
    await apply_definitions(cluster, source)
    timeline.event("the definitions in crds/ are served")
    await start_operator(cluster)
    timeline.done("operator started", since=began, proof=f"its log: {cluster.log_file(OPERATOR)}")
    kubectl = Kubectl(cluster.bin / "kubectl", cluster.kubeconfig, timeline)
    async with connect(user_agent="elasticjob-demo", kubeconfig=cluster.kubeconfig) as kube:
        observer = JobObserver(kube, NAMESPACE, JOB, timeline)
        watching = asyncio.create_task(observer.watch())
        running = asyncio.create_task(
            DemoScenario(source / "examples", kubectl, observer, timeline).run()
        )
        try:
            done, _ = await asyncio.wait({watching, running}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            if observer.job is not None:
                checkpoints.folder = CHECKPOINTS / observer.job.metadata.uid
            for task in (watching, running):
                task.cancel()
            await asyncio.gather(watching, running, return_exceptions=True)


def what_to_try(kubeconfig: Path, programs: Path, source: Path) -> list[str]:
    """Return commands to try after the demo, in this order; they run its job once more."""
    own = shlex.quote(str(Path(sys.executable).parent))
    return [
        f"export KUBECONFIG={shlex.quote(str(kubeconfig))}",
        f"export PATH={shlex.quote(str(programs))}:{own}:$PATH",
        f"elasticjob describe {JOB}",
        f"elasticjob delete {JOB}",
        f"elasticjob submit {shlex.quote(str(source.absolute() / 'examples' / 'digits.yaml'))}",
        f"elasticjob wait {JOB} --for=step=10",
        f"elasticjob scale {JOB} 4 --wait",
        f"elasticjob logs {JOB} --all --tail 3",
        f"elasticjob top {JOB}",
        "kubectl get elasticjobs,scaleplans,pods",
    ]


def _print_examples(cluster: Cluster, source: Path) -> None:
    down = f"elasticjob dev down --state {shlex.quote(str(cluster.state))}"
    lines = [*what_to_try(cluster.kubeconfig, cluster.bin, source), down]
    typer.echo("\nThe cluster is up. Try:\n  " + "\n  ".join(lines))
