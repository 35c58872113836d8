"""`elasticjob convert`: reads jobs of other operators, writes ElasticJobs, and prints a report."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from elasticjob_api.yaml_documents import MAX_BYTES, Document, Place, Unreadable, read_all

from elasticjob_cli.common.arguments import Option
from elasticjob_cli.convert.comments import Comments, comments
from elasticjob_cli.convert.converters import convert as convert_document
from elasticjob_cli.convert.converters import with_comments
from elasticjob_cli.convert.peers import jobs_of
from elasticjob_cli.convert.rendering import render
from elasticjob_cli.convert.report import Converted, Kind, hint
from elasticjob_cli.convert.training_runtime import runtimes_of

LOST = 3
UNREADABLE = 2
_LINES_OF_A_DOCUMENT = 200
_MOST_CHARACTERS = 1500
"""Bound of a line of the report."""


class ConvertError(Exception):
    """The input cannot be read, or the output cannot be written; the message has the remedy."""


def convert(
    file: Annotated[
        str,
        Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="YAML of one or more objects; - for standard input.",
        ),
    ],
    to_dir: Annotated[
        Path | None,
        Option(
            "--to-dir",
            metavar="DIR",
            help="Write a file for each object; default: standard output.",
        ),
    ] = None,
    force: Annotated[bool, Option("--force", help="Overwrite files in DIR.")] = False,
    strict: Annotated[
        bool,
        Option("--strict", help="Count differences and invented values as lost, too."),
    ] = False,
) -> None:
    """Convert the job files of other operators.

    These are et-operator, DLRover, FrameworkController, dl-operator and Kubeflow. The report is on
    standard error. Exit code 0: nothing is lost; 3: something is lost; 2: the input cannot be read.
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
        raise SystemExit(UNREADABLE) from error
    notes = [note for result in results for note in result.notes]
    if any(strict or note.kind is Kind.LOST for note in notes):
        raise SystemExit(LOST)


def _text(file: str) -> str:
    """Return the input, at most one byte more than its bound."""
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
            return data.decode(errors="replace")  # `read` refuses it for its length
        raise ConvertError(
            f"{file}: byte {error.start} is not UTF-8; write the file in UTF-8"
        ) from error


def _results(text: str) -> list[Converted]:
    documents = _documents(text)
    values = (document.value for document in documents)
    parts = list(_flat(zip(values, comments(text, documents), strict=True)))
    jobs = jobs_of(document for document, _ in parts)
    runtimes = runtimes_of(document for document, _ in parts)
    results = [
        with_comments(convert_document(document, number, jobs, runtimes), document, found)
        for number, (document, found) in enumerate(parts, start=1)
    ]
    if not results:
        raise ConvertError("the input has no document")
    return results


def _documents(text: str) -> list[Document]:
    """Return the documents of a text; the error of one that is a template has a hint."""
    try:
        return read_all(text)
    except Unreadable as error:
        raise Unreadable(f"{error}{hint(text)}") from error


def _flat(documents: Iterable[tuple[Any, Comments]]) -> Iterator[tuple[Any, Comments]]:
    """Yield the documents with their comments, and the objects of lists one by one."""
    for document, found in documents:
        if document is None:
            continue
        items = document.get("items") if isinstance(document, dict) else None
        if not isinstance(items, list) or not str(document.get("kind")).endswith("List"):
            yield document, found
            continue
        of_items: list[list[tuple[Place, str]]] = [[] for _ in items]
        for place, text in found:
            if place[:1] == ("items",) and len(place) > 1:
                of_items[int(place[1])].append((place[2:], text))
        yield from zip(items, map(tuple, of_items), strict=True)


def _report(results: Sequence[Converted]) -> Iterator[str]:
    for result in results:
        what = "passed through unchanged" if result.passed_through else f"becomes {result.title}"
        yield _printable(f"{result.source}: {what}")
        for note in result.notes[:_LINES_OF_A_DOCUMENT]:
            yield f"  {_printable(note.line())}"
        if (more := len(result.notes) - _LINES_OF_A_DOCUMENT) > 0:
            yield f"  and {more} more"


def _printable(text: str) -> str:
    """Return a bounded text without control characters."""
    return re.sub(r"[^ -~]+", " ", text[:_MOST_CHARACTERS])


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
    """Return a file name for each object: kind and name, with a number if they are taken."""
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
