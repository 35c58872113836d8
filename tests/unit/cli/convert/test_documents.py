"""Tests that hostile YAML is read within bounds, with the values that Kubernetes reads."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from elasticjob_api import yaml_documents as documents
from elasticjob_api.yaml_documents import Unreadable, read
from hypothesis import given
from hypothesis import strategies as st

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", 1), ("a: '1'", "1"), ("a: !!str 1", "1"), ("a: 0x1f", 31), ("a: 0o17", 15),
        ("a: 1.5", 1.5),
        ("a: 1e3", 1000.0), ("a: True", True), ("a: off", False), ("a: ~", None), ("a:", None),
        ("a: 1:30", "1:30"),
        ("a: 2026-01-01", "2026-01-01"), ("a: 2Gi", "2Gi"), ("a: 99999999999999999999", 1e20),
        ("b: &b {c: 1}\na: {<<: *b, d: 2}", {"c": 1, "d": 2}),
        ("b: &b {c: 1}\na: {<<: *b, c: 2}", {"c": 2}),
        ("b: &b [1]\na: [*b, *b]", [[1], [1]]),
    ],
)  # fmt: skip
def test_a_value_is_read_as_kubernetes_reads_it(text: str, value: Any) -> None:
    [document] = read(text)
    assert document["a"] == value
    assert type(document["a"]) is type(value)


@pytest.mark.guarantee("converted-jobs-are-accepted")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "document 1: not valid YAML"),
        ("a: 1\n---\nb: {c", "document 2: not valid YAML"),
        ("a: 1\na: 2", "document 1, line 2, column 4: key 'a' is given twice"),
        ("a: &a [*a]", "alias *a has no complete value"),
        ("a: *b", "alias *b"),
        ("a: !!python/object/apply:os.system [x]", "has the tag tag:yaml.org,2002:python/object"),
        ("a: !!binary aGk=", "has the tag tag:yaml.org,2002:binary"),
        ("a: .inf", ".inf is not a number of JSON"),
        ("a: 1e999", "1e999 is not a number of JSON"),
        ('a: "\\ud800"', "document 1"),
        ("{a: 1}: b", "is a key that is not a text"),
        ("<<: 1", "<< needs an alias of a map"),
        ("[" * 100 + "]" * 100, "is nested deeper than 60"),
        (
            "a: &a " + "x" * 100_000 + "\nb: [" + "*a," * 10_000 + "]",
            "has more than 50000 values, aliases included",
        ),
        (BOMB, "has more than 50000 values, aliases included"),
        ("a\n---\n" * 300, "has more than 200 documents"),
        ("#" * (documents.MAX_BYTES + 1), "more than 1048576 bytes"),
        ("a: \x01", "document 1: not valid YAML"),
    ],
)
def test_an_unreadable_document_is_an_error_with_its_place(text: str, message: str) -> None:
    with pytest.raises(Unreadable) as error:
        read(text)
    assert message in str(error.value)


@given(st.text(max_size=200))
def test_any_text_is_read_or_is_an_error(text: str) -> None:
    with suppress(Unreadable):
        read(text)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn", "Zl", "Zp"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc-", min_size=1), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(PLAIN)
def test_values_of_json_are_read_as_they_are(value: Any) -> None:
    assert read(json.dumps({"a": value}, ensure_ascii=False)) == [{"a": value}]
