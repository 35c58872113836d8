"""Runs real jobs under random faults: `python -m tests.chaos --minutes 20 --seed 1`; see docs/reliability.md."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.support.chaos.run import Options, run
from tests.support.chaos.schedule import FAULTS, switched_on


def main() -> int:
    """Run, and return 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default="", help="only these kinds, or all but those with a minus; none: no fault")
    parser.add_argument("--gap", type=float, default=5.0, help="seconds between two faults (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=3, help="jobs at a time (default: %(default)s)")
    parser.add_argument(
        "--settle", type=float, default=480, help="seconds a job may take after the last fault (default: %(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="print all kinds of faults")
    given = parser.parse_args()
    if given.list:
        print("\n".join(f"{kind:<20} {what}" for kind, what in FAULTS.items()))
        return 0
    directory = Path(tempfile.mkdtemp(prefix=f"chaos-{given.seed}-"))
    options = Options(given.seed, given.minutes, switched_on(given.faults), given.gap, given.jobs, given.settle)
    record = asyncio.run(run(options, directory))
    print(f"\n{record.table(given.seed, given.minutes)}\nevery action: {record.file}")
    return 1 if record.findings else 0


if __name__ == "__main__":
    sys.exit(main())
