"""Commands in typer's form, with plain errors about wrong values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from enum import Enum
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperOption

from elasticjob_cli.common.arguments import Argument, Option


def typer_parameter(spec: Option | Argument) -> Any:
    """Return typer's form of an option or argument."""
    if isinstance(spec, Argument):
        return typer.Argument(**spec.settings)
    return typer.Option(*spec.names, **spec.settings)


class _Option(TyperOption):
    def process_value(self, ctx: Any, value: Any) -> Any:
        """Return the value that the command gets."""
        with _plain_errors(self, value):
            return super().process_value(ctx, value)


class _Argument(TyperArgument):
    def process_value(self, ctx: Any, value: Any) -> Any:
        """Return the value that the command gets."""
        with _plain_errors(self, value):
            return super().process_value(ctx, value)


class Command(TyperCommand):
    """A command whose errors about values are plain."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        parameters = super().get_params(ctx)
        for each in parameters:
            if type(each) is TyperOption:
                each.__class__ = _Option
            elif type(each) is TyperArgument:
                each.__class__ = _Argument
        return parameters


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
