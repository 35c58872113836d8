"""The training whose overhead is measured: one process, which saves its state as often as it pays.

It writes two numbers of seconds, eight bytes each, to RECORDS/PID: its CPU time in training steps,
and how long it has waited outside of them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import elasticjob
import numpy as np

_SIZE = 128
_PRODUCTS = 800
"""A step takes about fifty milliseconds."""
_STATE_BYTES = 32 << 20


def main() -> None:
    """Train until the end of the process."""
    values = np.random.default_rng(0).random((_SIZE, _SIZE), np.float32)
    state = np.zeros(_STATE_BYTES, np.uint8)
    seconds = np.memmap(Path(os.environ["RECORDS"], str(os.getpid())), float, "w+", shape=(2,))
    checkpointer = elasticjob.Checkpointer(os.environ["CHECKPOINT_DIR"])
    step = 0

    def save(folder: str) -> None:
        Path(folder, "state").write_bytes(state.data)

    while True:
        began = time.thread_time()
        for _ in range(_PRODUCTS):
            values = values @ values
            values /= np.abs(values).max()
        ended = time.thread_time()
        since = time.monotonic()
        step += 1
        checkpointer.step(step, save, due=None)
        passed = time.monotonic() - since
        seconds[0] += ended - began
        seconds[1] += max(0.0, passed - (time.thread_time() - ended))


if __name__ == "__main__":
    main()
