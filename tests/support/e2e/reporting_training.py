"""Counts steps with a loss, and prints each; ends when the file `finish` exists.

Usage: reporting_training.py FOLDER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import elasticjob


def main() -> None:
    """Count until the end."""
    folder = Path(sys.argv[1])
    step = 0
    while not (folder / "finish").exists():
        time.sleep(0.05)
        step += 1
        elasticjob.report_step(step, samples=32, metrics={"loss": 1 / step})
        print(f"step {step}", flush=True)
        if elasticjob.should_stop():
            elasticjob.confirm_stop()
            return


if __name__ == "__main__":
    main()
