"""Tests references to the variables of a world.

They follow Kubernetes' rules, although the kubelet has expanded the text before.
"""

from __future__ import annotations

import pytest
from elasticjob_api.references import TooLongError, hide, replace
from elasticjob_localcluster.node.environment import expand
from hypothesis import given
from hypothesis import strategies as st

WORLD = {"RANK": "3", "ELASTICJOB_PS_HOSTS": "10.0.0.1,10.0.0.2", "MASTER_PORT": "29500"}
OF_CONTAINER = {"FOLDER": "/data", "MASTER_PORT": "tcp://10.0.0.1:80"}
"""The kubelet's variables; a Service called `master` gives every container a MASTER_PORT."""
PIECES = st.sampled_from(
    [
        "$",
        "$$",
        "(",
        ")",
        "()",
        "RANK",
        "$(RANK)",
        "(RANK)",
        "$(FOLDER)",
        "$(MASTER_PORT)",
        "$(NONE)",
        "$RANK",
        " x ",
        "é",
    ]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def by_agent(text: str, world: dict[str, str]) -> str:
    """Return a text of a template after operator, kubelet and agent have processed it."""
    return replace(expand(hide(text, world), OF_CONTAINER.get), world, most=10_000)


@pytest.mark.guarantee("references-in-commands")
@given(TEXTS)
def test_every_text_becomes_what_a_kubelet_that_knew_the_world_would_make_of_it(text: str) -> None:
    assert by_agent(text, WORLD) == expand(text, {**OF_CONTAINER, **WORLD}.get)


@given(TEXTS)
def test_only_the_kubelet_changes_a_text_without_references_to_the_world(text: str) -> None:
    assert by_agent(text, {}) == expand(text, OF_CONTAINER.get)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--rank=$(RANK)", "--rank=3"),
        ("$(FOLDER)/$(RANK)", "/data/3"),
        ("--ps=$(ELASTICJOB_PS_HOSTS)", "--ps=10.0.0.1,10.0.0.2"),
        ("$$(RANK)", "$(RANK)"),
        ("$$$(RANK)", "$3"),
        ("$(RANKS) $(rank)", "$(RANKS) $(rank)"),
        (
            "echo $RANK ${RANK} $(date) {rank} %(RANK)s",
            "echo $RANK ${RANK} $(date) {rank} %(RANK)s",
        ),
    ],
)
def test_references_are_written_as_in_any_pod(text: str, expected: str) -> None:
    assert by_agent(text, WORLD) == expected


def test_values_are_not_searched_for_references() -> None:
    assert replace("$(A)", {"A": "$(B)", "B": "x"}, most=100) == "$(B)"


@pytest.mark.guarantee("references-in-commands")
def test_a_text_that_would_become_too_long_is_refused_before_it_is_built() -> None:
    with pytest.raises(TooLongError, match="it would have 100000000000 characters, more than 1000"):
        replace("$(A)" * 100_000, {"A": "x" * 1_000_000}, most=1000)
    assert replace("$(A)", {"A": "x" * 1000}, most=1000) == "x" * 1000


@pytest.mark.parametrize(
    "text", ["$" * 1_000_000, "$(" * 500_000, "$$(RANK" * 150_000, "(" * 1_000_000]
)
def test_a_hostile_text_takes_no_longer_than_its_length(text: str) -> None:
    assert replace(hide(text, WORLD), WORLD, most=len(text)) == text, (
        "in quadratic time it would take hours"
    )
