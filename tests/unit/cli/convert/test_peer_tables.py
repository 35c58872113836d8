"""Tests that each field, option, annotation and variable of the peers has a row that is true."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from elasticjob_cli.convert.converters import CONVERTERS
from elasticjob_cli.convert.report import Kind
from elasticjob_cli.convert.tables.rows import TABLES, Fate, Row, option

from tests.support.convert import converted
from tests.support.peer_documents import (
    MARK,
    at,
    minimal,
    peer_lists,
    template,
    value_of,
    with_field,
)
from tests.support.thorough import some_of

LISTS = list(peer_lists())
ANNOTATIONS = {
    name: f"metadata.annotations.{name}"
    for title, names in LISTS
    if title == "annotations"
    for name in names
}
UNSUPPORTED = {"PaddleJob kubeflow.org/v1", "XGBoostJob kubeflow.org/v1"}
"""Kinds that are refused: there is no framework for them."""
OLDER = {"--relaunch-on-worker-failure VALUE"}
"""Options that only earlier versions have."""
VALUES_OF_OPTIONS = {"nnodes": "1:4", "nproc-per-node": "2", "node-unit": "2"}
TITLES = {
    "Framework": "Framework frameworkcontroller.microsoft.com/v1",
    "master": "DLRover's master",
    "torch.distributed.launch": "torchrun",
    "variables": "FrameworkController's variables",
}
"""The titles of the tables for the lists whose titles are others."""
WHOLE = ("TrainingJob", "ElasticJob", "Framework", "MXJob", "PyTorchJob")
"""A kind of each peer of which every run takes all rows."""


def covers(row: str, field: str) -> bool:
    """Return whether a row is that of a field, or of one around it."""
    return field == row or field.startswith((f"{row}.", f"{row}["))


@pytest.mark.guarantee("converted-jobs-are-accepted")
@pytest.mark.parametrize(("title", "names"), LISTS, ids=[title for title, _ in LISTS])
def test_every_field_option_and_annotation_of_the_peers_has_a_row(
    title: str, names: list[str]
) -> None:
    if title in UNSUPPORTED:
        kind, version = title.split(" ")
        assert (version, kind) not in CONVERTERS
        return
    if title == "annotations":
        rows = [row.theirs for table in TABLES.values() for row in table]
        assert {ANNOTATIONS[name] for name in names} <= set(rows)
        return
    rows = [row.theirs for row in TABLES[TITLES.get(title, title)]]
    assert [name for name in names if not any(covers(row, name) for row in rows)] == []


def test_every_row_is_that_of_a_field_of_a_peer() -> None:
    known: dict[str, list[str]] = {}
    for title, names in LISTS:
        if title not in UNSUPPORTED and title != "annotations":
            known.setdefault(TITLES.get(title, title), []).extend(names)
    invented = [
        row.theirs
        for title, table in TABLES.items()
        for row in table
        if title in known
        and row.theirs not in OLDER.union(ANNOTATIONS.values())
        and not any(covers(row.theirs, name) for name in known[title])
    ]
    assert invented == []


def rows_of_kinds() -> list[Any]:
    """Return kind and version with each row; every run takes all of a kind per peer."""
    found = []
    for version, kind in CONVERTERS:
        rows = TABLES[f"{kind} {version}"]
        cases = [pytest.param(version, kind, row, id=f"{kind}:{row.theirs}") for row in rows]
        found += some_of(cases, every=1 if kind in WHOLE else 5)
    return found


@pytest.mark.guarantee("converted-jobs-are-accepted")
@pytest.mark.parametrize(("version", "kind", "row"), rows_of_kinds())
def test_a_field_becomes_what_its_row_says(version: str, kind: str, row: Row) -> None:
    document = with_field(minimal(version, kind), row.theirs.replace("spec[]", "spec.0"))
    result = converted(document)
    assert result.object is not None
    path = row.theirs.replace("<name>", "worker").replace("[]", "[0]")
    named = [note for note in result.notes if path.lower() in note.field.lower()]
    if row.fate is Fate.LOST:
        assert [(note.kind, note.message) for note in named] == [(Kind.LOST, row.why)]
        return
    assert [note for note in named if note.kind is Kind.LOST] == []
    found = [at(result.object, ours) for ours in row.ours.split(", ") if ours]
    assert None not in found
    if row.fate is Fate.KEPT:
        assert is_kept(value_of(row.theirs), found[0])
    elif not row.ours:
        assert [note for note in named if note.kind is Kind.DIFFERS], "left out without a note"
    elif row.ours.endswith("template"):
        assert MARK in str(found[0])


def options() -> list[Any]:
    """Return each option of the launchers, with either dash."""
    rows = [(row, launcher) for launcher in ("torchrun", "dlrover-run") for row in TABLES[launcher]]
    cases = [
        pytest.param(row, launcher, dash, id=f"{row.theirs}{dash}")
        for (row, launcher), dash in product(rows, "-_")
    ]
    return some_of(cases, every=3)


@pytest.mark.guarantee("converted-jobs-are-accepted")
@pytest.mark.parametrize(("row", "launcher", "dash"), options())
def test_an_option_of_a_launcher_becomes_what_its_row_says(
    row: Row, launcher: str, dash: str
) -> None:
    name = f"--{option(row).replace('-', dash)}"
    words = [name, VALUES_OF_OPTIONS.get(option(row), "1")] if "VALUE" in row.theirs else [name]
    document = minimal("elastic.iml.github.io/v1alpha1", "ElasticJob")
    container = document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container["command"] = [launcher, *words, "train.py"]
    result = converted(document)
    command = at(result.object, "replicaSpecs.worker.template")["spec"]["containers"][0]["command"]
    if row.fate is Fate.KEPT:
        assert command == ["torchrun", *words, "train.py"]
        return
    assert command == ["torchrun", "train.py"]
    lost = [note.message for note in result.notes if note.kind is Kind.LOST]
    assert lost == ([f"--{option(row)} {row.why}"] if row.fate is Fate.LOST else [])
    assert [note for note in result.notes if f"--{option(row)}" in note.message]
    assert None not in [at(result.object, ours) for ours in row.ours.split(", ") if ours]


@pytest.mark.parametrize("row", TABLES["DLRover's master"], ids=lambda row: row.theirs)
def test_an_option_of_dlrovers_master_is_lost_by_name_or_known_here(row: Row) -> None:
    document = minimal("elastic.iml.github.io/v1alpha1", "ElasticJob")
    group = {"template": template(command=["python", "-m", "master", f"--{option(row)}", "1"])}
    document["spec"]["replicaSpecs"]["dlrover-master"] = group
    lost = [note.message for note in converted(document).notes if note.kind is Kind.LOST]
    assert lost == ([f"--{option(row)}: {row.why}"] if row.fate is Fate.LOST else [])


@pytest.mark.parametrize(
    "row", TABLES["FrameworkController's variables"], ids=lambda row: row.theirs
)
def test_a_variable_of_a_task_becomes_what_its_row_says(row: Row) -> None:
    document = minimal("frameworkcontroller.microsoft.com/v1", "Framework")
    pod = template(command=["sh", "-c", f"echo ${row.theirs}"])
    document["spec"]["taskRoles"][0]["task"]["pod"] = pod
    result = converted(document)
    lost = [note for note in result.notes if note.kind is Kind.LOST and row.theirs in note.message]
    assert len(lost) == (row.fate is Fate.LOST)
    container = at(result.object, "replicaSpecs.worker.template")["spec"]["containers"][0]
    has_it = row.theirs in [variable["name"] for variable in container["env"]]
    assert has_it == (row.fate is not Fate.LOST)


def is_kept(value: Any, found: Any) -> bool:
    """Return whether a value is as it was; of a template the image counts."""
    if isinstance(value, dict) and "spec" in value:
        return MARK in str(found)
    return bool(found == value)
