"""Tests that comments of a document stand at the fields that theirs became."""

from __future__ import annotations

from contextlib import suppress

import pytest
import yaml
from elasticjob_api.yaml_documents import Unreadable, read, read_all
from elasticjob_cli.convert.comments import MAX_PLACED, comments, placed
from elasticjob_cli.convert.converters import convert, with_comments
from elasticjob_cli.convert.rendering import render
from elasticjob_cli.convert.report import Converted
from hypothesis import given
from hypothesis import strategies as st

JOB = """\
# first
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: a  # its name
spec:
  runPolicy: # of the run
    # queued
    suspend: true
  pytorchReplicaSpecs:
    Worker:
      replicas: 2 # two, # always
      template:
        spec:
          containers:
            - name: sidecar # ships logs
              image: sidecar:1
            # the main one
            - name: pytorch
              image: 'x # y:1'
              # script
              command:
                - bash
                - | # of a block
                  # not a comment
                  python x.py # nor this
              env:
                # needed
                - {name: B, value: c} # flow
# last
"""


def lines_of(text: str) -> list[str]:
    """Return the lines of the result of one document."""
    [found] = comments(text, read_all(text))
    [document] = read(text)
    return render(with_comments(convert(document, 1), document, found)).splitlines()


@pytest.mark.guarantee("converted-jobs-are-accepted")
@pytest.mark.parametrize(
    ("comment", "field"),
    [
        ("# its name", "name: a"),
        ("# queued", "suspend: true"),
        ("# two, # always", "replicas: 2"),
        ("# ships logs", "- name: sidecar"),
        ("# the main one", "- name: pytorch"),
        ("# script", "command:"),
        ("# of a block", "- |"),
    ],
)
def test_a_comment_stands_at_the_field_that_its_field_became(comment: str, field: str) -> None:
    lines = [line.strip() for line in lines_of(JOB)]
    assert lines.count(comment) == 1
    after = lines[lines.index(comment) + 1 :]
    assert next(line for line in after if not line.startswith("#")) == field


def test_all_comments_are_kept_and_the_text_of_values_is_none() -> None:
    lines = [line.strip() for line in lines_of(JOB)]
    kept = ["# first", "# of the run", "# needed", "# flow", "# last"]
    assert [lines.count(comment) for comment in kept] == [1] * 5
    assert lines.count("# not a comment") == 1  # in the script
    assert "# nor this" not in lines
    assert "# y:1'" not in lines


def test_comments_beyond_the_bound_stand_at_the_top() -> None:
    found = ((("data", "a"), "x"),) * (MAX_PLACED + 2)
    written = {"data": {"a": 1}}
    places = [place for place, _ in placed(found, written, written, ())]
    assert places == [("data", "a")] * MAX_PLACED + [()] * 2


PIECES = st.sampled_from(
    (
        "# c", "a: 1", "- ", "\n", "---\n", " ", "{", "}", "[", "]", "|\n", "'", '"', ":", "x",
        "\r", "\x85", "\u2028", "&a ", "*a", "...\n", "? ", "<<: ", "null", "é", "\t", ">-\n",
    )
)  # fmt: skip


@given(st.lists(PIECES, max_size=30).map("".join))
def test_any_text_that_can_be_read_has_comments_for_each_document(text: str) -> None:
    with suppress(Unreadable):
        documents = read_all(text)
        found = comments(text, documents)
        assert len(found) == len(documents)
        for document, own in zip(documents, found, strict=True):
            value = document.value
            result = Converted("x", {"a": value}, comments=placed(own, value, value, ()))
            assert read(render(result)) == [{"a": value}]


@given(st.text(max_size=60), st.lists(st.sampled_from(["a", 0, "b"]), max_size=2))
def test_no_comment_changes_the_object(text: str, place: list[str | int]) -> None:
    written = {"a": [{"b": 1}]}
    result = Converted("x", written, comments=((tuple(place), text),))
    assert yaml.safe_load(render(result)) == written
