"""Lets processes vanish from the network: nothing that they send gets through, and no connection is
closed.

All pods share one kernel and one network here, so the packets of a pod are told by the control
group of its processes: the kernel marks their sockets with its class, also those that are open.
Needs root, the program `nft` and the controller net_cls of control groups, version 1.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

_MAJOR = 0xE1A5 << 16
_TABLE = """table inet {name} {{
  chain sent {{
    type filter hook output priority 0
    meta cgroup {mark} drop
  }}
}}
"""


@dataclass(frozen=True)
class PacketFilter:
    """Drops all packets of the processes that it holds.

    Attributes:
        root: the mounted hierarchy of control groups.
        mark: the class of the vanished.
        numbers: of the groups, one for each that has vanished.
    """

    root: Path
    mark: int
    numbers: Iterable[int]

    @property
    def table(self) -> str:
        """Return the name of its table: two runs at a time have one each."""
        return _name(self.mark)

    def drop(self, pids: Iterable[int]) -> Path:
        """Drop what these processes, and those that they will start, send; return their group."""
        group = self.root / f"{self.table}-{next(iter(self.numbers))}"
        group.mkdir()
        (group / "net_cls.classid").write_text(str(self.mark))
        for pid in pids:
            _move(pid, group)
        return group

    def restore(self, group: Path) -> None:
        """Let everything of a group get through again."""
        for _ in range(3):  # some may just have started others
            for pid in (group / "cgroup.procs").read_text().split():
                _move(int(pid), self.root)
        with contextlib.suppress(OSError):  # an ended one whose parent is frozen stays in it
            group.rmdir()

    def close(self) -> None:
        """Remove the table and the mount; every group has been restored."""
        subprocess.run(["nft", "delete", "table", "inet", self.table], check=True)
        subprocess.run(["umount", "--lazy", self.root], check=True)


def packet_filter(folder: Path) -> PacketFilter | None:
    """Make a packet filter whose groups are in an empty folder; None where that is not possible."""
    if os.geteuid() != 0 or shutil.which("nft") is None:
        return None
    if not _done("mount", "-t", "cgroup", "-o", "net_cls", "chaos", str(folder)):
        return None
    mark = _MAJOR | (os.getpid() & 0xFFFF)
    if not _done("nft", "-f", "-", text=_TABLE.format(name=_name(mark), mark=mark)):
        _done("umount", "--lazy", str(folder))
        return None
    return PacketFilter(folder, mark, count())


def _name(mark: int) -> str:
    return f"chaos-{mark & 0xFFFF}"


def _done(*command: str, text: str = "") -> bool:
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    return done.returncode == 0


def _move(pid: int, group: Path) -> None:
    with contextlib.suppress(ProcessLookupError):
        (group / "cgroup.procs").write_text(str(pid))
