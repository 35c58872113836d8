"""How often the master is called, for its metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Calls:
    """Numbers of gRPC calls since this master's start; what a stranger names does not become a key."""

    taken: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=lambda: Counter(token=0, method=0))
