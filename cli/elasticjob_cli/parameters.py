"""Commands that start without pydantic, whose import takes a quarter of the time of `list`.

Typer converts each value with it, also texts and defaults, which need no conversion.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from enum import Enum
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from elasticjob_cli.common.arguments import Argument, Option


def typer_parameter(spec: Option | Argument) -> Any:
    """Return typer's form of an option or argument."""
    if isinstance(spec, Argument):
        return typer.Argument(**spec.settings)
    return typer.Option(*spec.names, **spec.settings)


class _Option(TyperOption):
    def process_value(self, ctx: Any, value: Any) -> Any:
        """Return the value that the command gets."""
        if not _is_final(self, value):
            with _plain_errors(self, value):
                return super().process_value(ctx, value)
        return value if self.callback is None else self.callback(ctx, self, value)


class _Argument(TyperArgument):
    def process_value(self, ctx: Any, value: Any) -> Any:
        """Return the value that the command gets."""
        if not _is_final(self, value):
            with _plain_errors(self, value):
                return super().process_value(ctx, value)
        return value if self.callback is None else self.callback(ctx, self, value)


class Command(TyperCommand):
    """A command that converts only the values that need it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        return _replaced(super().get_params(ctx))


class Group(TyperGroup):
    """The same for the options of a group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options."""
        return _replaced(super().get_params(ctx))


def _replaced(parameters: list[Any]) -> list[Any]:
    for each in parameters:
        if type(each) is TyperOption:
            each.__class__ = _Option
        elif type(each) is TyperArgument:
            each.__class__ = _Argument
    return parameters


def _is_final(parameter: TyperOption | TyperArgument, value: Any) -> bool:
    """Return whether a value has the type of its parameter already."""
    if parameter.multiple or parameter.nargs != 1:
        return False
    if value is None:
        return not parameter.required
    # Typer may change what it does not document; then each value is converted again.
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    return isinstance(annotation, type) and type(value) is annotation


@contextmanager
def _plain_errors(parameter: TyperOption | TyperArgument, value: object) -> Iterator[None]:
    """Remove the words with which pydantic begins its errors, and suggest a similar choice."""
    try:
        yield
    except typer.BadParameter as error:
        error.message = error.message.removeprefix("Value error, ")
        kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        choices = [str(each.value) for each in _members(kind)]
        if near := get_close_matches(str(value), choices, n=1):
            error.message = f"{error.message.rstrip('.')}. Did you mean {near[0]}?"
        raise


def _members(kind: object) -> list[Enum]:
    """Return the choices of an enumeration; none for another type."""
    return list(kind) if isinstance(kind, type) and issubclass(kind, Enum) else []
