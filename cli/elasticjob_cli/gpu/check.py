"""The checks of `elasticjob doctor --gpu`, in order; each is the product's own part at work.

Without a GPU the same checks run on the CPU, and the first line says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import psutil
from elasticjob_client.errors import ClientError

from elasticjob_cli.gpu.runs import CheckFailed, LocalRun, Process, output, running

_SECONDS = 300.0
"""For all checks together; what is under way then may take another minute to end."""
_QUIET_SECONDS = 8.0
"""A process in standby rests for a second at most between its imports."""
_ABOUT = (
    "import json, torch; print(json.dumps([torch.__version__, *map(torch.cuda.get_device_name, "
    "range(torch.cuda.device_count() if torch.cuda.is_available() else 0))]))"
)


class Measured(msgspec.Struct, frozen=True):
    """A checked part: what was measured, or the problem."""

    check: str
    value: str | float = ""
    unit: str = ""
    problem: str = ""


def check_gpu(python: str) -> Iterator[Measured]:
    """Yield what is measured with a Python that has PyTorch, as soon as it is known.

    Raises:
        ClientError: that Python has no PyTorch.
    """
    deadline = time.monotonic() + _SECONDS
    try:
        torch, *gpus = json.loads(output([python, "-c", _ABOUT], _SECONDS))
    except (OSError, CheckFailed, subprocess.TimeoutExpired) as error:
        raise ClientError(
            f"{python} has no PyTorch ({str(error)[-200:]}): name another Python with --python"
        ) from error
    mode = ", ".join(gpus) or "CPU mode: PyTorch finds no GPU, so none was checked"
    yield Measured("device", f"{mode}; PyTorch {torch}")
    on_gpu = bool(gpus)
    with TemporaryDirectory(prefix="elasticjob-gpu-") as name:
        folder = Path(name)
        parts: dict[str, Callable[[], Iterator[Measured]]] = {
            "node check": lambda: _product(python, deadline),
            "checkpoint in memory": lambda: _copies(python, deadline, "4" if on_gpu else "0.25"),
            "run -n 1": lambda: _alone(python, folder / "one", deadline, on_gpu=on_gpu),
            "run -n 2": lambda: _together(python, folder / "two", deadline),
        }
        for part, work in parts.items():
            try:
                yield from work()
            except (CheckFailed, OSError, subprocess.TimeoutExpired, psutil.Error) as error:
                yield Measured(part, problem=str(error))


def _product(python: str, deadline: float) -> Iterator[Measured]:
    benchmark = [sys.executable, "-m", "elasticjob_agent.node_benchmark"]
    left = deadline - time.monotonic()
    found = json.loads(output([*benchmark, python, str(left)], left))
    if "device_seconds" not in found:
        raise CheckFailed(found.get("errors") or f"not done within {left:.0f} s")
    name = f"node check: matrix product, {found['device']}"
    yield Measured(name, 1000 * found["device_seconds"], "ms")


def _copies(python: str, deadline: float, most_gib: str) -> Iterator[Measured]:
    with TemporaryDirectory(prefix="elasticjob-gpu-", dir="/dev/shm") as memory:
        script = str(Path(__file__).with_name("copying.py"))
        found = json.loads(output([python, script, memory, most_gib], deadline - time.monotonic()))
    yield Measured("state", found.pop("gib"), "GiB")
    for name, speed in found.items():
        yield Measured(name, speed, "GiB/s")


def _alone(python: str, folder: Path, deadline: float, *, on_gpu: bool) -> Iterator[Measured]:
    """Run one worker: its start, its stack, and its usage as `elasticjob top` shows it."""
    began = time.time()
    with running(python, folder, deadline, 1, "--no-standby") as run:
        _, (process,) = run.world(1)
        yield Measured("run -n 1: start to first step", process.steps[0] - began, "s")
        (group,) = run.answer("stacks")["groups"]
        if not any("training.py" in frame for frame in group["frames"]):
            raise CheckFailed(f"the stack does not show the program: {group}")
        yield Measured("run -n 1: stack", group["frames"][0])

        def usage() -> dict[str, Any] | None:
            (member,) = run.answer("query", "members")["members"]
            found: dict[str, Any] = member.get("usage") or {}
            is_known = found.get("cpuCores") and (int(found["gpuMemoryBytes"]) or not on_gpu)
            return found if is_known else None

        used = run.until("usage of the worker", usage)
        yield Measured("run -n 1: CPU in use", used["cpuCores"], "cores")
        yield Measured("run -n 1: memory in use", int(used["memoryBytes"]) >> 20, "MiB")
        yield Measured("run -n 1: GPU in use", used["gpuPercent"], "%")
        yield Measured("run -n 1: GPU memory in use", int(used["gpuMemoryBytes"]) >> 20, "MiB")


def _together(python: str, folder: Path, deadline: float) -> Iterator[Measured]:
    """Run two workers, on one GPU if there is only one, and kill a process of theirs twice."""
    began = time.time()
    with running(python, folder, deadline, 2, "--standby") as run:
        round_, processes = run.world(2)
        start = max(each.steps[0] for each in processes) - began
        yield Measured("run -n 2 (Gloo): start to first step", start, "s")
        # The imports of the program are not known yet, so no process can be in standby.
        round_, processes, pause = _killed(run, round_)
        yield Measured("kill to next step, cold", pause, "s")
        yield Measured("of which import", processes[0].import_seconds, "s")
        waiting = run.until("processes in standby", lambda: _quiet(run, processes))
        opened = sorted({path for each in waiting for path in _gpus_opened_by(each)})
        if opened:
            raise CheckFailed(f"a process in standby has opened {', '.join(opened)}")
        yield Measured("GPUs opened in standby", 0)
        _, processes, pause = _killed(run, round_)
        if {each.pid for each in processes} != {each.pid for each in waiting}:
            raise CheckFailed(f"a process did not begin in standby; the pause was {pause:.2f} s")
        yield Measured("kill to next step, from standby", pause, "s")
        yield Measured("of which import", processes[0].import_seconds, "s")


def _killed(run: LocalRun, round_: int) -> tuple[int, list[Process], float]:
    """Kill rank 1 of a world; return the next world, and the seconds without a step of rank 0."""
    psutil.Process(run.processes(round_, 2)[1].pid).kill()
    later, processes = run.world(2, after=round_)
    last = run.processes(round_, 2)[0].steps[-1]
    return later, processes, processes[0].steps[0] - last


def _quiet(run: LocalRun, training: list[Process]) -> list[psutil.Process] | None:
    """Return both processes in standby if they have used no CPU for a while."""

    def used() -> dict[psutil.Process, float]:
        # Only the processes of the run have its folder among their words.
        return {
            each: sum(each.cpu_times()[:2])
            for each in psutil.process_iter(["cmdline"])
            if str(run.folder) in (words := each.info["cmdline"] or ())
            and any("_standby_start" in word for word in words)
            and each.pid not in {other.pid for other in training}
        }

    before = used()
    if len(before) != 2:
        return None
    time.sleep(_QUIET_SECONDS)
    return list(before) if before == used() else None


def _gpus_opened_by(process: psutil.Process) -> Iterator[str]:
    """Yield the GPUs that a process has opened, without which it has no memory on them."""
    for each in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if (target := str(each.readlink())).startswith("/dev/nvidia"):
                yield target
