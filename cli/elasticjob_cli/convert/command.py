"""`elasticjob convert`: jobs of other operators, as ElasticJobs.

Reads and writes files, and prints the report.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticjob_cli.convert.converters import convert as convert_document
from elasticjob_cli.convert.documents import MAX_BYTES, Unreadable, read
from elasticjob_cli.convert.rendering import render
from elasticjob_cli.convert.report import Converted, Kind

LOST = 3
UNREADABLE = 2
_LINES_OF_A_DOCUMENT = 200
_MOST_CHARACTERS = 1500
"""Of a line of the report."""


class ConvertError(Exception):
    """The input cannot be read, or the output not be written; the message says what to do."""


def convert(
    file: Annotated[
        str,
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="YAML of one or several objects; - is standard input.",
        ),
    ],
    to_dir: Annotated[
        Path | None,
        typer.Option(
            "--to-dir",
            metavar="DIR",
            help="Write a file for each object; default: standard output.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files in DIR.")] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="What differs and what was invented counts as lost, too."),
    ] = False,
) -> None:
    """Convert the job files of other operators.

    They are those of et-operator, DLRover, FrameworkController, dl-operator and Kubeflow. The
    report is on standard error. Exit code 0: nothing is lost; 3: something is; 2: the input can't
    be read.
    """
    try:
        results = _results(_text(file))
        for line in _report(results):
            typer.echo(line, err=True)
        if any(result.object is None for result in results):
            raise ConvertError("nothing was written, because of the errors above")
        _write(results, to_dir, force=force)
    except (ConvertError, Unreadable) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(UNREADABLE) from error
    if _is_lost(results, strict=strict):
        raise typer.Exit(LOST)


def _text(file: str) -> str:
    """Return the input, as far as it may be long, so that the bound can be told."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConvertError(f"{file}: {error.strerror}; give a file that can be read") from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if len(data) > MAX_BYTES:
            return data.decode(
                errors="replace"
            )  # the cut may be within a character; the bound is told later
        raise ConvertError(
            f"{file}: byte {error.start} is no UTF-8; write the file in UTF-8"
        ) from error


def _results(text: str) -> list[Converted]:
    results = [
        convert_document(document, number)
        for number, document in enumerate(_flat(read(text)), start=1)
    ]
    if not results:
        raise ConvertError("the input has no document")
    return results


def _flat(documents: Sequence[Any]) -> Iterator[Any]:
    """Yield the documents, those in lists of objects one by one."""
    for document in documents:
        items = document.get("items") if isinstance(document, dict) else None
        kind = document.get("kind") if isinstance(document, dict) else None
        if isinstance(items, list) and isinstance(kind, str) and kind.endswith("List"):
            yield from items
        else:
            yield document


def _report(results: Sequence[Converted]) -> Iterator[str]:
    for result in results:
        what = "passed through unchanged" if result.passed_through else f"becomes {result.title}"
        yield _printable(f"{result.source}: {what}")
        for note in result.notes[:_LINES_OF_A_DOCUMENT]:
            yield f"  {_printable(note.line())}"
        if (more := len(result.notes) - _LINES_OF_A_DOCUMENT) > 0:
            yield f"  and {more} more"


def _printable(text: str) -> str:
    """Return a text without what a terminal would obey, and not endless."""
    return re.sub(r"[^ -~]+", " ", text[:_MOST_CHARACTERS])


def _is_lost(results: Sequence[Converted], *, strict: bool) -> bool:
    return any(strict or note.kind is Kind.LOST for result in results for note in result.notes)


def _write(results: Sequence[Converted], directory: Path | None, *, force: bool) -> None:
    if directory is None:
        typer.echo("---\n".join(render(result) for result in results), nl=False)
        return
    files = _file_names(results)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if existing := [name for name in files if (directory / name).exists() and not force]:
            raise ConvertError(f"{directory / existing[0]}: exists; remove it, or give --force")
        for name, result in zip(files, results, strict=True):
            with (directory / name).open("w" if force else "x", encoding="utf-8") as opened:
                opened.write(render(result))
    except OSError as error:
        raise ConvertError(
            f"{error.filename}: {error.strerror}; give a directory that can be written to"
        ) from error


def _file_names(results: Sequence[Converted]) -> list[str]:
    """Return the name of the file for each object: kind and name.

    A number for those that have the same.
    """
    found: list[str] = []
    for result in results:
        base = re.sub(r"[^a-z0-9]+", "-", result.title.lower()).strip("-")[:100] or "object"
        name = f"{base}.yaml"
        number = 2
        while name in found:
            name = f"{base}-{number}.yaml"
            number = number + 1
        found.append(name)
    return found
