"""Times a matrix product on the devices that PyTorch uses, else with NumPy on the CPU.

It runs as a script of the training container's Python, of any version from 3.7. It writes the
device, then the seconds of the slowest one. SIGALRM ends it if a device needs more seconds than its
argument says.
"""

from __future__ import annotations

import importlib
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

_ON_CPU = 1024
_ON_GPU = 4096
_ROUNDS = 5
"""The fastest counts: a short disturbance does not make a node unfit."""


def main() -> None:
    """Write the device and the seconds, a line each; nothing without PyTorch and NumPy."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        try:
            numpy: Any = importlib.import_module("numpy")
        except ImportError:
            return
        matrix = numpy.ones((_ON_CPU, _ON_CPU), numpy.float32)
        write("NumPy on the CPU")
        write(fastest(lambda: matrix @ matrix, lambda: None))
        return
    if not torch.cuda.is_available():
        write("PyTorch on the CPU")
        write(on_torch(torch, "cpu", _ON_CPU, lambda: None))
        return
    gpus = range(torch.cuda.device_count())
    write(", ".join(sorted({torch.cuda.get_device_name(gpu) for gpu in gpus})))
    write(
        max(
            on_torch(torch, f"cuda:{gpu}", _ON_GPU, partial(torch.cuda.synchronize, gpu))
            for gpu in gpus
        )
    )


def on_torch(torch: Any, device: str, size: int, wait: Callable[[], Any]) -> float:
    """Return the seconds of a product of two square matrices of this size on a device."""
    matrix = torch.ones((size, size), device=device)
    return fastest(lambda: matrix @ matrix, wait)


def fastest(work: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Return the seconds of the fastest round; the first one only loads what it needs."""
    seconds = []
    for _ in range(1 + _ROUNDS):
        wait()
        start = time.perf_counter()
        work()
        wait()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def write(value: object) -> None:
    """Write a line at once; the next one has to follow within the time."""
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()
    signal.alarm(int(sys.argv[1]))


if __name__ == "__main__":
    main()
