"""Tests that rendered YAML reads as the converted object, with comments before fields."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from elasticjob_api.yaml_documents import read
from elasticjob_cli.convert.rendering import render
from elasticjob_cli.convert.report import Converted, Kind, Note
from hypothesis import example, given
from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
VALUES = st.recursive(
    st.booleans() | st.integers(-(10**17), 10**17) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXT.filter(lambda key: key != "<<"), inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.guarantee("converted-jobs-are-accepted")
@given(VALUES, st.lists(st.sampled_from(["a", "b", 0, 1]), max_size=3), TEXT)
@example("1e3", [], "")
@example("y", [], "")
@example("\x85x\n # y", ["a"], "\n---\nkind: Pod")
def test_any_object_with_any_comment_reads_as_it_was(
    value: Any, place: list[str | int], message: str
) -> None:
    written = {"a": value, "b": [value, {"a": value}]}
    note = Note(Kind.LOST, "spec.a", message, tuple(place))
    text = render(Converted("document 1", written, (note,)))
    assert read(text) == [written]
    assert yaml.safe_load(text) == written


@pytest.mark.parametrize(
    "text", ["y", "N", "1e3", "0o17", "0x1f", "1_0", "1:30", "2026-01-01", ".5", "-1", "~", "on"]
)
def test_ambiguous_texts_are_quoted(text: str) -> None:
    assert render(Converted("document 1", {"a": text})).splitlines()[1] == f"a: '{text}'"


def test_a_comment_precedes_its_field_with_its_indentation() -> None:
    written = {"spec": {"roles": [{"name": "a", "size": 1}]}}
    notes = (
        Note(Kind.DIFFERS, "x", "means something else", ("spec", "roles", 0, "size")),
        Note(Kind.LOST, "spec.y", "is lost"),
        Note(Kind.INVENTED, "z", "near", ("spec", "roles", 0, "nothing", "there")),
    )
    assert render(Converted("document 1, Job a", written, notes)).splitlines() == [
        "# From document 1, Job a, by elasticjob convert.",
        "# spec.y: lost: is lost",
        "spec:",
        "  roles:",
        "    # invented: near",
        "    - name: a",
        "      # means something else",
        "      size: 1",
    ]


def test_scripts_stay_readable() -> None:
    text = render(Converted("document 1", {"args": ["set -e\necho a\n"]}))
    assert text.splitlines()[1:] == ["args:", "  - |", "    set -e", "    echo a"]
