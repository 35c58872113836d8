"""The options of `submit` and `init` for a job's pods, from the table that they share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from elasticjob_client.errors import WrongArgument
from elasticjob_client.template_options import OPTIONS, Option

from elasticjob_cli.common.options import Framework, with_options

Given = Mapping[str, Sequence[str]]
"""The texts that each option was given, by its name; only those of options that were given."""
_REQUIREMENTS = "requirements"


def with_template(
    *, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a `JobTemplate`, in place of its parameter `given`.

    `without`: names of options that the command does not have.
    """
    options = {
        name.replace("-", "_"): _annotation(name, option)
        for name, option in OPTIONS.items()
        if name not in without
    }
    options[_REQUIREMENTS] = Annotated[
        list[str] | None,
        typer.Option(help="A requirements.txt, as --pip for each line.", metavar="FILE"),
    ]

    def value(**given: Any) -> Given:
        texts = {name.replace("_", "-"): each for name, each in given.items() if each}
        return {
            name: each if isinstance(each, list) else [str(each)] for name, each in texts.items()
        }

    return lambda command: with_options(command, "given", options, value)


def _annotation(name: str, option: Option) -> Any:
    flags = [f"--{name}", "--dir"] if name == "file" else [f"--{name}"]
    several = "; may be given more than once." if option.many else ""
    text = option.help.rstrip(".") + several if several else option.help
    declared = typer.Option(*flags, help=text, metavar=option.metavar)
    if name == "framework":
        return Annotated[Framework | None, typer.Option(*flags, help=text)]
    return Annotated[(list[str] if option.many else str) | None, declared]


def read_requirements(given: Given) -> Given:
    """Put the lines of requirements files in place of the files. Raises `WrongArgument`."""
    texts = dict(given)
    for file in texts.pop(_REQUIREMENTS, ()):
        try:
            texts["pip"] = [*texts.get("pip", ()), *Path(file).read_text().splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise WrongArgument(f"--{_REQUIREMENTS} {file} cannot be read: {error}") from error
    return texts
