"""Checks which calls each token permits."""

from __future__ import annotations

import pytest
from elasticjob_api.query_token import query_token
from elasticjob_master.server.access import OPEN_TO_ALL, READING, Access, Tokens

CHANGES = (
    "Register",
    "Connect",
    "Create",
    "Lease",
    "Report",
    "Extend",
    "Restore",
    "Set",
    "Add",
    "Delete",
    "Barrier",
)


def test_each_token_permits_its_own_calls() -> None:
    tokens = Tokens("secret")
    assert tokens.access("Bearer secret") is Access.ALL
    assert tokens.access(f"Bearer {query_token('secret')}") is Access.READ
    for other in (
        None,
        "",
        "Bearer",
        "Bearer ",
        "secret",
        "Bearer secre",
        query_token("secret"),
        "Bearer \u00e4",
    ):
        assert tokens.access(other) is Access.NONE
    assert Tokens(None).access(None) is Access.ALL


def test_the_query_token_differs_for_each_job() -> None:
    assert query_token("one") != query_token("two")
    assert len(query_token("one")) == 64


@pytest.mark.guarantee("only-the-job-reaches-its-master")
def test_no_call_of_the_query_token_changes_the_job() -> None:
    for path in (*READING, *OPEN_TO_ALL):
        assert not path.rpartition("/")[2].startswith(CHANGES), path
    assert len([path for path in READING if "JobService" in path]) == 16
