"""`elasticjob dev up`, `down` and `status`: the commands of the embedded cluster."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from elasticjob_localcluster import cluster as clusters
from elasticjob_localcluster import daemons
from elasticjob_localcluster.cluster import Cluster
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.progress_display import ProgressDisplay
from elasticjob_localcluster.state_directory import state_dir

from elasticjob_cli.common.arguments import Option
from elasticjob_cli.common.streams import INTERRUPTED
from elasticjob_cli.dev.operator import (
    OPERATOR,
    apply_definitions,
    check_source,
    own_definitions,
    start_operator,
)

StateOption = Annotated[
    Path | None,
    Option("--state", metavar="DIR", help="The cluster's directory [$ELASTICJOB_STATE]."),
]
_READINESS = {True: "ready", False: "not ready"}
_TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def reported_errors() -> Iterator[None]:
    """Run a command: an error is printed and becomes exit status 1; a signal interrupts it once."""
    progress = ProgressDisplay()
    handlers = {number: signal.getsignal(number) for number in _TERMINATION_SIGNALS}

    def interrupt(number: int, _: FrameType | None) -> None:
        for other in _TERMINATION_SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number).name)

    for number in _TERMINATION_SIGNALS:
        signal.signal(number, interrupt)
    try:
        yield
    except LocalClusterError as error:
        progress.write(f"error: {error}")
        if error.detail:
            progress.write(error.detail)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        progress.write("interrupted; everything that was started has been stopped")
        raise SystemExit(INTERRUPTED) from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def up(
    control_plane_only: Annotated[
        bool, Option("--control-plane-only", help="No node: pods stay Pending.")
    ] = False,
    port: Annotated[
        int | None,
        Option(min=1, max=65535, help="The API server's port; by default a free one."),
    ] = None,
    capacity: Annotated[
        list[str] | None,
        Option(
            metavar="RESOURCE=QUANTITY",
            help="A resource of the node, e.g. cpu=64; may be repeated.",
        ),
    ] = None,
    operator: Annotated[
        bool,
        Option("--operator", help="Apply the definitions of jobs, and start the operator."),
    ] = False,
    source: Annotated[
        Path | None,
        Option(
            metavar="DIR", help="A checkout with other definitions; default: those of this package."
        ),
    ] = None,
    state: StateOption = None,
) -> None:
    """Start a Kubernetes cluster on this machine.

    No root, no containers. The first time it downloads Kubernetes' programs, or builds them from
    Go modules where dl.k8s.io is not reached, which takes some minutes.
    Writes shell text to stdout: eval "$(elasticjob dev up)"
    """
    with reported_errors():
        began = time.monotonic()
        progress = ProgressDisplay()
        directory = state or state_dir(os.environ)
        if operator:
            definitions = source or own_definitions()
            check_source(definitions)
        cluster = clusters.up(
            directory,
            control_plane_only=control_plane_only,
            port=port,
            capacity=_parse_capacity(capacity or []),
            kubectl_on_demand=True,
            progress=progress,
        )
        if cluster.children:
            progress.write(
                f"up in {time.monotonic() - began:.1f} s: https://127.0.0.1:{cluster.port}"
            )
        else:
            progress.write(f"already up: https://127.0.0.1:{cluster.port}")
        if operator:
            asyncio.run(_bring_operator(cluster, definitions))
            hints = with_operator(cluster, own_definitions())
        else:
            hints = next_steps(Path(sys.executable).parent)
        for line in hints:
            progress.write(line)
        typer.echo(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
        typer.echo(f"export PATH={shlex.quote(str(cluster.bin))}:$PATH")


async def _bring_operator(cluster: Cluster, definitions: Path) -> None:
    await apply_definitions(cluster, definitions)
    await start_operator(cluster)


_APPLY_DEFINITIONS = "kubectl apply --server-side --force-conflicts -f crds -f policies"
"""As this cluster and `make install` apply them: another way would warn about each object."""
_WAIT_FOR_DEFINITIONS = (
    "kubectl wait crd --all "
    """--for=jsonpath='{.status.conditions[?(@.type=="Established")].status}'=True"""
)
"""`--for=condition=Established` fails on a definition that has no conditions yet."""


def next_steps(programs: Path) -> list[str]:
    """Return the hints for the user of a new cluster: the commands that it still needs."""
    return [
        "It has neither the definitions of jobs nor the operator (--operator brings both). "
        "With KUBECONFIG and PATH as below, in a checkout:",
        f"  {_APPLY_DEFINITIONS} && {_WAIT_FOR_DEFINITIONS}",
        f"  {shlex.quote(str(programs / 'elasticjob-operator'))} &",
        "  kubectl apply -f examples/digits.yaml && kubectl get ej -w",
    ]


def with_operator(cluster: Cluster, checkout: Path) -> list[str]:
    """Return the hints for the user of a new cluster with an operator.

    Args:
        cluster: the new cluster.
        checkout: the folder of the project; an installed package has no examples there.
    """
    running = f"the operator runs; its log is {cluster.log_file(OPERATOR)}"
    example = checkout / "examples" / "digits.yaml"
    if example.exists():
        return [running, f"  elasticjob submit {shlex.quote(str(example))}"]
    return [
        f"{running}. With KUBECONFIG and PATH as below, for a script of yours (the image is not "
        "used, but must be named):",
        "  elasticjob submit train.py --image any --workers 2",
    ]


def down(
    state: StateOption = None,
    every: Annotated[bool, Option("--all", help="All clusters of this user.")] = False,
) -> None:
    """Stop the cluster and remove its state; the programs stay in the cache.

    Without --state it is the cluster of `dev up`, or the one that a demo has kept.
    """
    with reported_errors():
        progress = ProgressDisplay()
        directories = [state or _present(state_dir(os.environ))]
        if every:
            directories = daemons.find_states()
        for directory in directories:
            began = time.monotonic()
            if clusters.down(directory):
                progress.write(f"down in {time.monotonic() - began:.1f} s: {directory}")
            else:
                progress.write(f"no cluster in {directory}")
        for other in daemons.find_states():
            progress.write(
                f"still up: {other} (elasticjob dev down --state {shlex.quote(str(other))})"
            )


def status(state: StateOption = None) -> None:
    """Show the processes, API server and nodes of this user's clusters.

    The exit status is 0 only when all is well.
    """
    with reported_errors():
        default = (state or state_dir(os.environ)).resolve()
        others = set() if state is not None else {*daemons.find_states()} - {default}
        directories = [default, *sorted(others)]
        found = [cluster for cluster in map(clusters.find, directories) if cluster is not None]
        if not found:
            typer.echo(f"no cluster in {default}")
            raise SystemExit(1)
        for cluster in found:
            _show(cluster)
        if any(cluster.problems() or None in _processes(cluster).values() for cluster in found):
            raise SystemExit(1)


def _present(directory: Path) -> Path:
    """Return the directory, or without a cluster in it, that of the only one beside it."""
    beside = [each for each in daemons.find_states() if each.parent == directory.resolve().parent]
    if clusters.find(directory) is None and len(beside) == 1:
        return beside[0]
    return directory


def _processes(cluster: Cluster) -> dict[str, int | None]:
    """Return the process ids of the cluster and of the operator that `up --operator` started."""
    ids = cluster.process_ids()
    operator = daemons.recorded(cluster.state).get(OPERATOR)
    if operator is not None:
        ids[OPERATOR] = operator.pid if operator.alive() else None
    return ids


def _show(cluster: Cluster) -> None:
    for name, pid in _processes(cluster).items():
        state = "down"
        if pid is not None:
            state = f"up    process {pid}"
        typer.echo(f"{name:<24} {state}")
    ready = _READINESS[cluster.api_ready()]
    typer.echo(f"{'API server':<24} {ready}   https://127.0.0.1:{cluster.port}")
    for name, is_ready in cluster.nodes().items():
        typer.echo(f"{f'node {name}':<24} {_READINESS[is_ready]}")
    typer.echo(f"{'KUBECONFIG':<24} {cluster.kubeconfig}")


def _parse_capacity(texts: list[str]) -> dict[str, str]:
    amounts = {}
    for text in texts:
        name, equals, amount = text.partition("=")
        if not (name and equals and amount):
            raise LocalClusterError(
                f"--capacity {text}: expected RESOURCE=QUANTITY, for example cpu=64"
            )
        amounts[name] = amount
    return amounts
