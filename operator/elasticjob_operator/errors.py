"""Why a decision could not be carried out as it was."""

from __future__ import annotations


class StaleState(Exception):
    """The decision was made on a state that is no longer so; the store has been told what is: decide again."""
