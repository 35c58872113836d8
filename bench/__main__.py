"""Measures figures: `python -m bench [NAME ...]`, all of them without a name.

Writes their last results into docs/performance.md.

Exit code 1 when a goal is missed.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import uvloop

from bench import (
    autoscaling,
    decisions,
    goodput,
    master_load,
    neighbours,
    operator_writes,
    performance_page,
    pod_creation,
    scale,
    shards,
    step_reports,
    training_overhead,
    training_pauses,
)
from bench.bench_cluster import REPOSITORY, on_cluster
from bench.figure import Figure, NotMeasured, append, line

FIGURES = (
    Figure("create_ratio", on_cluster(pod_creation.create_ratio), goal=0.60, at_least=True),
    Figure("jobs_1000x2_s", on_cluster(scale.jobs_1000x2), goal=90),
    Figure("beside_10000_s", on_cluster(scale.beside_10000), goal=1.0),
    Figure("pod_kib", scale.pod_kib, goal=6),
    Figure("pod_event_us", scale.pod_event_us, goal=100),
    Figure("left_out_event_us", scale.left_out_event_us, goal=10),
    Figure("masters_200_s", on_cluster(pod_creation.masters_200), goal=1.0),
    Figure("jobs_100x4_s", on_cluster(pod_creation.jobs_100x4), goal=1.5),
    Figure("scaleplan_200_s", on_cluster(pod_creation.scaleplan_200), goal=0.5),
    Figure("scaleplan_4_s", on_cluster(pod_creation.scaleplan_4), goal=0.1),
    Figure("relaunch_30_s", on_cluster(pod_creation.relaunch_30), goal=1.0),
    Figure("neighbour_replaced_s", on_cluster(neighbours.replaced), goal=2.0),
    Figure("writes_per_worker", on_cluster(operator_writes.writes_per_worker), goal=1.2),
    Figure("writes_at_rest", on_cluster(operator_writes.writes_at_rest), goal=0),
    *(
        Figure(f"{name}_{size}_ms", decisions.cpu_of(event, size), goal=goal)
        for name, event, goal in (
            ("decision", decisions.nothing_new, 2),
            ("lost_member", decisions.lost_member, 10),
            ("plan_of_10", decisions.plan, 40),
        )
        for size in (100, 1_000, 10_000)
    ),
    Figure("master_shards_per_s", shards.shards_per_s, goal=10_000, at_least=True),
    Figure("report_step_us", step_reports.report_step, goal=10),
    Figure("training_overhead_pct", on_cluster(training_overhead.overhead, node=True), goal=2.0),
    Figure("pause_pytorch_s", training_pauses.pauses(training_pauses.PYTORCH), goal=6.0),
    Figure("pause_torchrun_s", training_pauses.pauses(training_pauses.TORCHRUN), goal=6.0),
    Figure("pause_tensorflow_s", training_pauses.pauses(training_pauses.TENSORFLOW), goal=6.0),
    Figure("pause_jax_s", training_pauses.pauses(training_pauses.JAX), goal=6.0),
    Figure("goodput_mtbf_6h", goodput.with_mtbf(6), goal=0.96, at_least=True),
    Figure("goodput_mtbf_1h", goodput.with_mtbf(1), goal=0.85, at_least=True),
    Figure("master_heartbeats_per_s", master_load.heartbeats_per_s, goal=8300, at_least=True),
    Figure("master_heartbeat_ratio", master_load.heartbeat_ratio, goal=0.60, at_least=True),
    Figure("master_heartbeat_p99_ms", master_load.heartbeat_p99, goal=20),
    Figure("master_cpu_1000_pct", master_load.cpu_1000, goal=40),
    Figure("master_agent_kib", master_load.agent_kib, goal=60),
    Figure("master_rendezvous_1000_s", master_load.rendezvous_1000, goal=1.0),
    Figure("master_rendezvous_10000_s", master_load.rendezvous_10000, goal=5.0),
    Figure("master_query_10000_p99_ms", master_load.query_10000, goal=100),
    Figure("master_step_report_us", master_load.step_report_us, goal=50),
    Figure("master_rss_mb", on_cluster(master_load.rss), goal=80),
    *autoscaling.FIGURES,
)
RESULTS = REPOSITORY / "bench" / "results.jsonl"
PAGE = REPOSITORY / "docs" / "performance.md"


async def measure(chosen: list[Figure]) -> bool:
    """Measure and print the figures, one after the other; return whether all goals are reached."""
    reached = True
    for figure in chosen:
        try:
            result = await figure.measure()
        except NotMeasured as why:
            sys.stderr.write(f"{figure.name} is not measured: {why}\n")
            continue
        text = line(figure, result)
        append(RESULTS, text)
        performance_page.write(RESULTS, PAGE, FIGURES)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        if not figure.meets(result):
            reached = False
            bound = "at least" if figure.at_least else "at most"
            sys.stderr.write(f"{figure.name} should be {bound} {figure.goal:g}\n")
    return reached


async def _until_stopped(chosen: list[Figure]) -> bool:
    """Measure; SIGTERM ends the clusters, too."""
    task = asyncio.ensure_future(measure(chosen))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def main(names: list[str]) -> int:
    """Measure the figures with these names; return the exit code."""
    known = {figure.name: figure for figure in FIGURES}
    if unknown := [name for name in names if name not in known]:
        sys.stderr.write(f"no figure {', '.join(unknown)}; there are {', '.join(known)}\n")
        return 2
    chosen = [known[name] for name in names] or list(FIGURES)
    try:
        return 0 if uvloop.run(_until_stopped(chosen)) else 1
    except asyncio.CancelledError:
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
