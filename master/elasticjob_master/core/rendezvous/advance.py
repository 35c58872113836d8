"""The one entry of the rendezvous, which forms worlds, the sets of members that train together.

`advance` is the only function that changes a `RendezvousState`. An event only changes facts. A tick
compares the facts with the desired state, makes the transitions that they allow, and returns the
commands that are missing. So a repeated, late or lost message, a reconnection or a restart of the
master needs no handling of its own. The events of many members are applied one by one, and one tick
decides for all of them: it looks at the members that have changed, and `census` knows the others.

Phases: "waiting" (there is no world), "training", "reforming" (the world is being stopped), and
"finishing" (a member has finished successfully; members that leave from then on change no world).
`world_changes` has the transitions between them. A world is formed only when no process of the last
one runs; only in-process elastic frameworks get the next world while their processes run.
"""

from __future__ import annotations

from elasticjob_master.core.rendezvous import (
    desired_commands,
    failure_detection,
    node_check,
    world_changes,
)
from elasticjob_master.core.rendezvous.commands import Command
from elasticjob_master.core.rendezvous.events import Event
from elasticjob_master.core.rendezvous.state import RendezvousState


def advance(state: RendezvousState, now: float, event: Event | None = None) -> list[Command]:
    """Apply an event, or make every decision that the facts allow now if there is no event.

    Args:
        state: is changed.
        now: the time of any monotonic clock.
        event: the event; None for a tick, that is, if only time has passed.

    Returns:
        The commands that follow, in the order in which they are to be executed.
    """
    if event is None:
        return _decide(state, now)
    return event.apply(state, now) or []


def _decide(state: RendezvousState, now: float) -> list[Command]:
    """Make every decision that the facts allow now, and return the commands that follow."""
    state.store_needed = False
    commands = failure_detection.handle_timeouts(state, now)
    node_check.advance(state, now)
    failure_detection.resolve_crashes(state, now)
    world_changes.advance(state, now)
    return commands + desired_commands.missing_commands(state, now)
