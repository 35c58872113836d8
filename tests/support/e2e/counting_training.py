"""Trains N steps without a folder.

Its source is the argument of `python -c`, so any cluster can run it.
"""

import sys
import time

import elasticjob


def main() -> None:
    """Count to N."""
    total = int(sys.argv[1])
    print("begins", flush=True)
    for step in range(1, total + 1):
        time.sleep(0.05)
        elasticjob.report_step(step, total=total, samples=1, metrics={"loss": 1 / step})
        if elasticjob.should_stop():
            print(f"saved at step {step}", flush=True)
            elasticjob.confirm_stop()
            return


if __name__ == "__main__":
    main()
