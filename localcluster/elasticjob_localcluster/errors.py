"""The error of the embedded cluster's commands.

Its message says what went wrong and what the user can do.
"""

from __future__ import annotations


class LocalClusterError(Exception):
    """A failure that the user can act upon; `detail` has lines that help to find the cause."""

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail
