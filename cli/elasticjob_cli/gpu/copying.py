"""Times copies of a state for `elasticjob doctor --gpu`, in the user's Python; writes JSON.

A checkpoint in memory (`spec.agent.stateMemory`) is `torch.save` into a folder in memory. Beside it
stands a bare copy of the same tensor. The arguments are that folder and the most GiB.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

_ROUNDS = 2
"""The faster one counts: the first one gets its memory from the system."""


def main() -> None:
    """Write the GiB, and the GiB/s of each copy."""
    folder = Path(sys.argv[1])
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    room = [float(sys.argv[2]) * 2**30, shutil.disk_usage(folder).free / 3]
    if on_gpu:
        room.append(torch.cuda.mem_get_info()[0] / 3)
    state = torch.ones(int(min(room)) // 4, device=device)
    target = torch.empty_like(state, device="cpu")
    gib = float(state.nelement() * 4 / 2**30)

    def speed(work: Callable[[], object]) -> float:
        seconds = []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            work()
            if on_gpu:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
        return gib / min(seconds)

    file = folder / "state.pt"
    found = {
        "gib": gib,
        "saved into memory (torch.save)": speed(lambda: torch.save(state, file)),
        "a bare copy into memory": speed(lambda: target.copy_(state)),
        "loaded back (torch.load)": speed(lambda: torch.load(file, map_location=device)),
        "a bare copy back": speed(lambda: state.copy_(target)),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
