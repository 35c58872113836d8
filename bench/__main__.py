"""Measures figures: `python -m bench [NAME ...]`, all of them without a name. Exit code 1 when a goal is missed."""

from __future__ import annotations

import sys

import uvloop

from bench import autoscaler, creates, masters, scaling, shards, training, writes
from bench.figure import Figure, append, line
from bench.rig import REPOSITORY, on_cluster

FIGURES = (
    Figure("create_ratio", on_cluster(creates.create_ratio), goal=0.60, at_least=True),
    Figure("masters_200_s", on_cluster(creates.masters_200), goal=1.0),
    Figure("jobs_100x4_s", on_cluster(creates.jobs_100x4), goal=1.5),
    Figure("scaleplan_200_s", on_cluster(scaling.scaleplan_200), goal=0.5),
    Figure("scaleplan_4_s", on_cluster(scaling.scaleplan_4), goal=0.1),
    Figure("relaunch_30_s", on_cluster(scaling.relaunch_30), goal=1.0),
    Figure("writes_per_worker", on_cluster(writes.writes_per_worker), goal=1.2),
    Figure("writes_at_rest", on_cluster(writes.writes_at_rest), goal=0),
    Figure("master_shards_per_s", shards.shards_per_s, goal=10_000, at_least=True),
    Figure("report_step_us", training.report_step, goal=10),
    Figure("master_heartbeats_per_s", masters.heartbeats_per_s, goal=8300, at_least=True),
    Figure("master_heartbeat_ratio", masters.heartbeat_ratio, goal=0.60, at_least=True),
    Figure("master_heartbeat_p99_ms", masters.heartbeat_p99, goal=20),
    Figure("master_cpu_1000_pct", masters.cpu_1000, goal=40),
    Figure("master_agent_kib", masters.agent_kib, goal=60),
    Figure("master_rendezvous_1000_s", masters.rendezvous_1000, goal=1.0),
    Figure("master_step_report_us", masters.step_report_us, goal=50),
    Figure("master_rss_mb", on_cluster(masters.rss), goal=80),
    Figure("autoscaler_worst_ratio", autoscaler.worst_ratio, goal=0.95, at_least=True),
)
RESULTS = REPOSITORY / "bench" / "results.jsonl"


async def measure(chosen: list[Figure]) -> bool:
    """Measure and tell, one after the other; return whether all goals are reached."""
    reached = True
    for figure in chosen:
        result = await figure.measure()
        text = line(figure, result)
        append(RESULTS, text)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        if not figure.meets(result):
            reached = False
            bound = "at least" if figure.at_least else "at most"
            sys.stderr.write(f"{figure.name} should be {bound} {figure.goal:g}\n")
    return reached


def main(names: list[str]) -> int:
    """Measure the figures with these names; return the exit code."""
    known = {figure.name: figure for figure in FIGURES}
    if unknown := [name for name in names if name not in known]:
        sys.stderr.write(f"no figure {', '.join(unknown)}; there are {', '.join(known)}\n")
        return 2
    chosen = [known[name] for name in names] or list(FIGURES)
    return 0 if uvloop.run(measure(chosen)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
