"""Prints texts that may contain what other users and programs have written."""

from __future__ import annotations

import typer
from elasticjob_api.plain_text import printable


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text of one or more lines; control characters are escaped.

    Args:
        text: the text, or JSON, which stays valid.
        err: print it on standard error.
        nl: end the last line.
    """
    typer.echo(printable(text, lines=True), err=err, nl=nl)
