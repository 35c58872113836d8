"""Errors of the execution of a decision."""

from __future__ import annotations


class StaleState(Exception):
    """The decision was made on a stale state; the store has been updated, so decide again."""
