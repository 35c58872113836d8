"""References to variables that differ between worlds: `$(NAME)` in a command or a variable's value.

The syntax is that of Kubernetes: `$$(NAME)` stands for the text `$(NAME)`, and a reference to an
unknown variable is kept. The kubelet replaces references when the container starts, but does not
know these variables, or uses one of the same name from a Service. So the operator hides these
references from the kubelet, and the agent replaces them for each process of each world. This module
needs only the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

# Matching starts at the first of several dollar signs, so the time is linear in their number.
_REFERENCE = re.compile(r"(?<!\$)(\$+)\(([A-Za-z_][A-Za-z0-9_]*)\)")


class TooLongError(ValueError):
    """The text would become too long."""


def hide(text: str, variables: Collection[str]) -> str:
    """Double the dollar signs of references to some variables; the kubelet only halves them."""

    def hidden(found: re.Match[str]) -> str:
        return found[1] + found[0] if found[2] in variables else found[0]

    return _REFERENCE.sub(hidden, text)


def replace(text: str, variables: Mapping[str, str], *, most: int) -> str:
    """Replace the references to some variables.

    Args:
        text: contains the references.
        variables: the values by name; references in them are not replaced.
        most: the greatest number of characters of the result.

    Raises:
        TooLongError: the result would be longer. This is checked before memory is allocated.
    """

    def value_of(found: re.Match[str]) -> str:
        dollars = len(found[1])
        name = found[2]
        if name not in variables:
            return found[0]
        value = variables[name] if dollars % 2 else f"({name})"
        return "$" * (dollars // 2) + value

    size = len(text) + sum(
        len(value_of(found)) - len(found[0]) for found in _REFERENCE.finditer(text)
    )
    if size > most:
        raise TooLongError(f"it would have {size} characters, more than {most}")
    return _REFERENCE.sub(value_of, text)
