"""Runs real jobs under random faults: `python -m tests.chaos --minutes 20 --seed 1`.

See docs/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from tests.support.chaos.record import Record
from tests.support.chaos.run import Options, run
from tests.support.chaos.schedule import FAULTS, switched_on
from tests.support.run_guard import start_guard


def main() -> int:
    """Run the jobs, and return 1 if a check has found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--faults",
        default="",
        help="only these kinds, or all but those with a minus; none: no fault",
    )
    parser.add_argument(
        "--gap", type=float, default=5.0, help="seconds between two faults (default: %(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=3, help="jobs at a time (default: %(default)s)")
    parser.add_argument(
        "--settle",
        type=float,
        default=480,
        help="seconds a job may take after the last fault (default: %(default)s)",
    )
    parser.add_argument(
        "--partitions",
        type=int,
        default=1,
        help="partitions of the two operators (default: %(default)s)",
    )
    parser.add_argument(
        "--pool",
        action="store_true",
        help="most jobs share an ElasticPool that is too small for them",
    )
    parser.add_argument("--list", action="store_true", help="print all kinds of faults")
    given = parser.parse_args()
    if given.list:
        print("\n".join(f"{kind:<20} {what}" for kind, what in FAULTS.items()))
        return 0
    directory = Path(tempfile.mkdtemp(prefix=f"chaos-{given.seed}-"))
    options = Options(
        given.seed,
        given.minutes,
        switched_on(given.faults),
        given.gap,
        given.jobs,
        given.settle,
        given.partitions,
        given.pool,
    )
    end_guard = start_guard()
    try:
        record = asyncio.run(_until_stopped(options, directory))
    except asyncio.CancelledError:
        print(f"stopped; every action: {directory}/actions.jsonl")
        return 1
    finally:
        end_guard()
    print(f"\n{record.table(given.seed, given.minutes)}\nevery action: {record.file}")
    return 1 if record.findings else 0


async def _until_stopped(options: Options, directory: Path) -> Record:
    """Run; SIGTERM or SIGINT ends the run and all of its processes."""
    task = asyncio.ensure_future(run(options, directory))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


if __name__ == "__main__":
    sys.exit(main())
