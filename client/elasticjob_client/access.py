"""Which cluster a user means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Access:
    """The cluster and namespace that a user chooses; None for the choice of kubectl."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
