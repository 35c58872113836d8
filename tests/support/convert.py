"""Converts documents of other operators, which are re-typed from their documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.yaml_documents import read
from elasticjob_cli.convert.converters import convert
from elasticjob_cli.convert.peers import jobs_of
from elasticjob_cli.convert.rendering import render
from elasticjob_cli.convert.report import Converted, Kind
from elasticjob_cli.convert.training_runtime import runtimes_of
from elasticjob_operator.core.manifests.validation import validation_error

from tests.support.crd_schema import problems
from tools.generate import definitions

FOLDER = Path(__file__).parent / "convert_samples"
SAMPLES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*.yaml"))
SCHEMAS: Mapping[str, Any] = {
    definition["spec"]["names"]["kind"]: definition["spec"]["versions"][0]["schema"][
        "openAPIV3Schema"
    ]
    for definition in definitions().values()
}
OURS = "elasticjob.dev/v1alpha1"


def sample(name: str) -> list[Any]:
    """Return the documents of a sample; each may be changed."""
    return [json.loads(json.dumps(document)) for document in read((FOLDER / name).read_text())]


def converted(document: Any, *others: Any) -> Converted:
    """Convert a valid document of a file with others.

    Check that API server and operator accept the result, and that it reads as written.
    """
    result = convert(document, 1, jobs_of([document, *others]), runtimes_of(others))
    assert result.object is not None, [note.line() for note in result.notes]
    assert yaml.safe_load(render(result)) == result.object
    assert read(render(result)) == [result.object]
    if result.object["apiVersion"] == OURS:
        found = problems(
            result.object["spec"], SCHEMAS[result.object["kind"]]["properties"]["spec"]
        )
        assert not found, found
    if result.object["kind"] == "ElasticJob":
        error = validation_error(msgspec.convert(result.object, ElasticJob))
        assert error is None, error
    return result


def written(document: Any, *others: Any) -> Any:
    """Return the object that a document of a file with others becomes."""
    return converted(document, *others).object


def spec_of(document: Any, *others: Any) -> dict[str, Any]:
    """Return the spec that a document of a file with others becomes."""
    spec: dict[str, Any] = written(document, *others)["spec"]
    return spec


def role_of(document: Any, role: str) -> dict[str, Any]:
    """Return a role of the job that a document becomes."""
    found: dict[str, Any] = spec_of(document)["replicaSpecs"][role]
    return found


def container_of(document: Any, role: str) -> dict[str, Any]:
    """Return the first container of a role of the job that a document becomes."""
    found: dict[str, Any] = role_of(document, role)["template"]["spec"]["containers"][0]
    return found


def notes_of(result: Converted, kind: Kind) -> list[str]:
    """Return the notes of one kind, as the report shows them."""
    return [note.line() for note in result.notes if note.kind is kind]


def lost(document: Any) -> list[str]:
    """Return the report's notes on lost fields."""
    return notes_of(converted(document), Kind.LOST)


def told(document: Any, text: str, *kinds: Kind) -> int:
    """Return in how many notes of these kinds, or of any, the report has a text."""
    notes = converted(document).notes
    return sum(text in note.line() for note in notes if note.kind in (kinds or Kind))


def errors(document: Any, *others: Any) -> list[str]:
    """Return the reasons why a document of a file with others cannot be converted."""
    result = convert(document, 1, runtimes=runtimes_of(others))
    assert result.object is None
    return notes_of(result, Kind.INVALID)
