"""What a process holds of commits, which it leaves to the next process of its member.

A process that waits for ever in a receive that Gloo has forgotten starts again. If a rank was
killed while it sent its part, the last copy of that part may be in such a process.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import torch  # type: ignore[import-not-found, unused-ignore]
from elasticjob_api import names

from elasticjob import _process
from elasticjob._torch_parts import Part

log = logging.getLogger("elasticjob")


@dataclass
class Holding:
    """What this process holds of a commit: the parts of some ranks, of so many."""

    ranks: int
    parts: dict[int, Part]


def leave_to_next(held: dict[str, Holding]) -> None:
    """Write what this process holds into the folder of its agent, which ends with the member."""
    path = _path()
    if path is None:
        return
    content = {
        key: (holding.ranks, {rank: part.fields() for rank, part in holding.parts.items()})
        for key, holding in held.items()
    }
    new = path.with_suffix(".new")
    try:
        torch.save(content, new)
        new.replace(path)
    except (OSError, RuntimeError) as error:  # a full disk is a RuntimeError of PyTorch
        log.warning("the commits of this process are not left to the next one: %s", error)
        new.unlink(missing_ok=True)


def take_over() -> dict[str, Holding]:
    """Return what the process before this one has left, once."""
    path = _path()
    if path is None or not path.exists():
        return {}
    try:
        content = torch.load(path, map_location="cpu", weights_only=False)
    finally:
        path.unlink()
    return {
        key: Holding(ranks, {rank: Part(*fields) for rank, fields in parts.items()})
        for key, (ranks, parts) in content.items()
    }


def _path() -> Path | None:
    socket = os.environ.get(names.ENV_SOCKET)
    if not socket:
        return None
    return Path(socket).parent / f"commits-{_process.local_rank()}.pt"
