"""Reads the documents of other operators, with a hint for those that are templates. Pure."""

from __future__ import annotations

from typing import Any

from elasticjob_api import yaml_documents
from elasticjob_api.yaml_documents import Document, Unreadable

from elasticjob_cli.convert.report import hint


def read(text: str) -> list[Any]:
    """Return the values of the documents of a text; empty ones are left out."""
    return [found.value for found in read_all(text) if found.value is not None]


def read_all(text: str) -> list[Document]:
    """Return the documents of a text.

    Raises:
        Unreadable: a document cannot be read.
    """
    try:
        return yaml_documents.read_all(text)
    except Unreadable as error:
        raise Unreadable(f"{error}{hint(text)}") from error
