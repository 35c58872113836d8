"""Measures figures: `python -m bench [NAME ...]`, all of them without a name. Exit code 1 when a goal is missed."""

from __future__ import annotations

import sys

import uvloop

from bench import creates, scaling, writes
from bench.figure import Figure, append, line
from bench.rig import REPOSITORY, control_plane, rig

FIGURES = (
    Figure("create_ratio", creates.create_ratio, goal=0.60, at_least=True),
    Figure("masters_200_s", creates.masters_200, goal=1.0),
    Figure("jobs_100x4_s", creates.jobs_100x4, goal=1.5),
    Figure("scaleplan_200_s", scaling.scaleplan_200, goal=0.5),
    Figure("scaleplan_4_s", scaling.scaleplan_4, goal=0.1),
    Figure("relaunch_30_s", scaling.relaunch_30, goal=1.0),
    Figure("writes_per_worker", writes.writes_per_worker, goal=1.2),
    Figure("writes_at_rest", writes.writes_at_rest, goal=0),
)
RESULTS = REPOSITORY / "bench" / "results.jsonl"


async def measure(chosen: list[Figure]) -> bool:
    """Measure and tell, each on a control plane of its own; return whether all goals are reached."""
    reached = True
    for figure in chosen:
        with control_plane() as cluster:
            async with rig(cluster) as prepared:
                result = await figure.measure(prepared)
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
