"""Standard output and error of the command. Imports nothing that is slow."""

from __future__ import annotations

import os
import sys
from typing import TextIO

INTERRUPTED = 130
"""The exit code after Ctrl-C, as in a shell."""


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text that may contain what other users and programs have written.

    Args:
        text: one or more lines, or JSON, which stays valid; control characters are escaped.
        err: print it on standard error.
        nl: end the last line.
    """
    from elasticjob_api.plain_text import printable  # imports re, which --version needs not

    stream = sys.stderr if err else sys.stdout
    stream.write(printable(text, lines=True) + ("\n" if nl else ""))
    stream.flush()


def discard(descriptor: int) -> TextIO:
    """Open the null device as standard output or error, so that no socket gets that descriptor."""
    opened = os.open(os.devnull, os.O_WRONLY)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
    return open(descriptor, "w", encoding="utf-8", closefd=False)
