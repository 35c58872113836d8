"""CPU and memory usage of the container's cgroup, which the kubelet and the OOM killer use, too.

Used only if the cgroup contains no other processes. Where containers are plain processes (on the
embedded cluster's node) or share a cgroup, the files exist too, but count other processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Container:
    """The cgroup folders of one container; both are the same in cgroup v2."""

    memory: Path
    cpu: Path
    version: int

    def memory_bytes(self) -> int:
        """Return the working set: the memory in use that the kernel cannot reclaim."""
        used, idle = ("memory.current", "inactive_file") if self.version == 2 else _V1_MEMORY
        return max(0, _number(self.memory / used) - _entry(self.memory / "memory.stat", idle))

    def memory_limit(self) -> int | None:
        """Return the memory that the container may use; None without a limit."""
        if self.version == 2:
            text = (self.memory / "memory.max").read_text().strip()
            return None if text == "max" else int(text)
        return _number(self.memory / "memory.limit_in_bytes")

    def memory_kills(self) -> int:
        """Return the number of processes that the kernel has killed for the memory limit."""
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        return _entry(self.memory / file, "oom_kill")

    def cpu_seconds(self) -> float:
        """Return the CPU seconds used since the container started."""
        if self.version == 2:
            return _entry(self.cpu / "cpu.stat", "usage_usec") / 1e6
        return _number(self.cpu / "cpuacct.usage") / 1e9


_V1_MEMORY = ("memory.usage_in_bytes", "total_inactive_file")


def own_container(
    mounts: Path = _MOUNTS, membership: Path = _OWN, pid: int | None = None
) -> Container | None:
    """Return this container's cgroup; None without one that contains only this process.

    Call it before this process starts others.
    """
    for candidate in _candidates(mounts, membership):
        try:
            alone = all(
                _pids(folder) == {pid or os.getpid()}
                for folder in (candidate.memory, candidate.cpu)
            )
            if alone and candidate.memory_bytes() >= 0 and candidate.cpu_seconds() >= 0:
                return candidate
        except (OSError, ValueError):
            continue
    return None


def _candidates(mounts: Path, membership: Path) -> Iterator[Container]:
    """Yield possible cgroups: at the path in /proc/self/cgroup, and at the root of the mount."""
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return
    paths = {name: path.lstrip("/") for _, names, path in lines for name in names.split(",")}
    for inside in (True, False):
        if "" in paths:
            folder = mounts / paths[""] if inside else mounts
            yield Container(memory=folder, cpu=folder, version=2)
        if "memory" in paths and "cpuacct" in paths:
            memory = mounts / "memory"
            cpu = mounts / "cpuacct"
            if inside:
                memory = memory / paths["memory"]
                cpu = cpu / paths["cpuacct"]
            yield Container(memory=memory, cpu=cpu, version=1)


def _pids(folder: Path) -> set[int]:
    """Return the processes in a group; those of other containers count as 0."""
    return {int(line) for line in (folder / "cgroup.procs").read_text().split()}


def _number(path: Path) -> int:
    return int(path.read_text())


def _entry(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    raise ValueError(f"{path} has no {name}")
