"""References to variables that differ from world to world.

`$(NAME)` in a command or in another variable's value. Syntax and rules are those of Kubernetes:
`$$(NAME)` is no reference but the text `$(NAME)`, and a reference to an unknown variable stays as
it is. The kubelet reads all references first, when the container starts. It does not know these
variables, or takes one of the same name that comes from a Service. So the operator hides their
references from the kubelet, and the agent replaces them for each process of each world. Standard
library only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

# From the first of several dollar signs on: so the time is linear, also for a text of nothing else.
_REFERENCE = re.compile(r"(?<!\$)(\$+)\(([A-Za-z_][A-Za-z0-9_]*)\)")


class TooLongError(ValueError):
    """A text would become too long."""


def hide(text: str, variables: Collection[str]) -> str:
    """Double the dollar signs of references to some variables.

    The kubelet halves them and replaces nothing.
    """
    return _REFERENCE.sub(
        lambda found: found[1] + found[0] if found[2] in variables else found[0], text
    )


def replace(text: str, variables: Mapping[str, str], *, most: int) -> str:
    """Replace the references to some variables, and keep all else.

    Args:
        text: what has the references.
        variables: the variables' values, which are not searched for references.
        most: characters that the text may have then.

    Raises:
        TooLongError: it would have more. This is found out before the memory is taken.
    """

    def value_of(found: re.Match[str]) -> str:
        dollars = len(found[1])
        name = found[2]
        if name not in variables:
            return found[0]
        return "$" * (dollars // 2) + (variables[name] if dollars % 2 else f"({name})")

    size = len(text) + sum(
        len(value_of(found)) - len(found[0]) for found in _REFERENCE.finditer(text)
    )
    if size > most:
        raise TooLongError(f"it would have {size} characters, more than {most}")
    return _REFERENCE.sub(value_of, text)
