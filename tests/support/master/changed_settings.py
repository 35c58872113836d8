"""Changes of a job's settings, for tests of the rendezvous and of the controller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from elasticjob_master.core.rendezvous.events import SettingsObserved
from elasticjob_master.core.rendezvous.state import RendezvousState


def changed_settings(state: RendezvousState, **changes: Any) -> SettingsObserved:
    """Return the present settings with some changes."""
    present = SettingsObserved(
        state.sizes, state.rules, state.timing, state.domains, state.node_check
    )
    return replace(present, **changes)
