"""The options and arguments of commands, and their values in a plain command line.

typer's import takes as long as `kubectl get` twice. A command line that needs no help, no
completion and no message about a mistake is read here; typer reads all others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from inspect import Parameter
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

_SCALARS = (str, int, float, Path)


class Option:
    """An option of a command, as typer takes it: its names, and settings such as `help`.

    Without names it is called like the parameter of the command.
    """

    def __init__(self, *names: str, **settings: Any) -> None:
        self.names = names
        self.settings = settings


class Argument:
    """An argument of a command, as typer takes it: its settings."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings


class _NotPlain(Exception):
    """The command line is one for typer."""


class _Slot:
    """A parameter of a command: what it is given, and how the values are read."""

    def __init__(self, parameter: Parameter) -> None:
        annotation = parameter.annotation
        found = [each for each in getattr(annotation, "__metadata__", ()) if _is_ours(each)]
        if len(found) != 1:
            raise _NotPlain
        self.name = parameter.name
        self.spec: Option | Argument = found[0]
        self.default = parameter.default
        kinds = [each for each in _alternatives(annotation.__origin__) if each is not NoneType]
        self.is_list = get_origin(kinds[0]) is list
        self.kind = get_args(kinds[0])[0] if self.is_list else kinds[0]
        self.is_flag = self.kind is bool

    @property
    def option_names(self) -> tuple[str, ...]:
        """The names of an option; none for an argument."""
        if isinstance(self.spec, Argument):
            return ()
        return self.spec.names or (f"--{self.name.replace('_', '-')}",)

    def read(self, text: str | None, given: dict[str, Any]) -> None:
        """Add a value to those that are given; None: the option is a flag."""
        if text is not None and text.startswith("-"):
            raise _NotPlain  # a typing mistake, or a negative number
        found = True if text is None else self._value(text)
        if self.is_list:
            given.setdefault(self.name, []).append(found)
        else:
            given[self.name] = found

    def _value(self, text: str) -> Any:
        """Return a text as the parameter's type."""
        if not (self.kind in _SCALARS or issubclass(self.kind, Enum)):
            raise _NotPlain
        try:
            found = self.kind(text)
        except ValueError:
            raise _NotPlain from None
        settings = self.spec.settings
        least = settings.get("min")
        most = settings.get("max")
        if (least is not None and found < least) or (most is not None and found > most):
            raise _NotPlain
        return found


def plain_values(command: Callable[..., None], words: Sequence[str]) -> dict[str, Any] | None:
    """Return the values of a command's parameters; None if typer must read the command line."""
    try:
        slots = [_Slot(each) for each in _parameters(command)]
        return _values(slots, words)
    except _NotPlain:
        return None


def with_typer(command: Callable[..., None], made: Callable[[Option | Argument], Any]) -> Any:
    """Return a command whose options and arguments are those of typer, which `made` makes."""

    def changed(**given: Any) -> None:
        command(**given)

    parameters = []
    for each in _parameters(command):
        kind: Any = each.annotation.__origin__
        annotation = Annotated[kind, made(_Slot(each).spec)]
        parameters.append(each.replace(annotation=annotation, kind=Parameter.KEYWORD_ONLY))
    changed.__doc__ = command.__doc__
    changed.__name__ = command.__name__
    changed.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(changed)["__signature__"] = inspect.Signature(parameters)
    return changed


def _values(slots: Sequence[_Slot], words: Sequence[str]) -> dict[str, Any]:
    options = {name: slot for slot in slots for name in slot.option_names}
    given: dict[str, Any] = {}
    positional: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            positional.append(word)
            continue
        name, equals, text = word.partition("=")
        slot = options.get(name)
        if slot is None or (equals and (slot.is_flag or not name.startswith("--"))):
            raise _NotPlain
        slot.read(None if slot.is_flag else text if equals else next(rest, "-"), given)
    for slot in slots:
        if not slot.option_names and positional:
            taken = positional if slot.is_list else positional[:1]
            for each in taken:
                slot.read(each, given)
            positional = positional[len(taken) :]
    if positional:
        raise _NotPlain
    for slot in slots:
        if slot.name not in given and slot.default is Parameter.empty:
            raise _NotPlain
        given.setdefault(slot.name, slot.default)
    return given


def _parameters(command: Callable[..., None]) -> Iterable[Parameter]:
    return inspect.signature(command, eval_str=True).parameters.values()


def _is_ours(metadata: object) -> bool:
    return isinstance(metadata, Option | Argument)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type."""
    is_union = isinstance(annotation, UnionType) or get_origin(annotation) is Union
    return get_args(annotation) if is_union else (annotation,)
