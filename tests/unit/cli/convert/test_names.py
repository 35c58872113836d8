"""Tests that names of other operators become valid and distinct names, always the same ones."""

from __future__ import annotations

import re

from elasticjob_cli.convert.common_fields import job_name, job_prefix, role_name
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.text("abcXYZ019-._é", min_size=1, max_size=70)
JOB = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
ROLE = re.compile(r"(?!master$)(?!.*-[0-9]+$)[a-z]([-a-z0-9]{0,18}[a-z0-9])?")


@given(NAMES)
def test_every_name_becomes_a_valid_one(name: str) -> None:
    assert JOB.fullmatch(job_name(name))
    assert JOB.fullmatch(job_prefix(name) + "12345")
    assert ROLE.fullmatch(role_name(name))


@given(NAMES)
def test_a_valid_name_is_kept(name: str) -> None:
    if JOB.fullmatch(name):
        assert job_name(name) == name
    if ROLE.fullmatch(name):
        assert role_name(name) == name


@given(st.sets(NAMES, min_size=2, max_size=2))
def test_two_names_stay_distinct(pair: set[str]) -> None:
    assert len({job_name(name) for name in pair}) == 2
    assert len({role_name(name) for name in pair}) == 2
