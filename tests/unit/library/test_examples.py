"""The example in the docstring of each public class and function runs as written."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import elasticjob
import pytest

NAMES = elasticjob.__all__


def example(name: str) -> str:
    """Return the first indented block of a public object's docstring."""
    found = re.search(r"\n\n((?: {4}.*\n|\n)+)", f"{inspect.getdoc(getattr(elasticjob, name))}\n")
    assert found, f"the docstring of elasticjob.{name} has no example"
    return dedent(found[1])


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_docstring_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("a.txt", "b.txt"):
        (tmp_path / file).write_text("one line\nanother one\n")

    def train(what: Any, **_options: Any) -> float:
        return what + 1 if isinstance(what, int) else 0.0

    def nothing(*_arguments: Any) -> float:
        return 1.0

    code = example(name)
    assert inspect.isclass(getattr(elasticjob, name)) or f"elasticjob.{name}(" in code
    names = {
        "elasticjob": elasticjob,
        "os": os,
        "train": train,
        "any_rank": bool,
        "total": 3,
        "step": 0,
        "write": lambda file: Path(file).write_text("model"),
        "batches": elasticjob.global_batches("parts", size=100, global_batch=10, step=0),
        "data": elasticjob.text_shards("texts", ["a.txt"], lines_per_shard=1),
        "optimizer": SimpleNamespace(step=nothing),
        "world": SimpleNamespace(commit=nothing),
    }
    names |= dict.fromkeys(("save", "rebuild", "download", "backward", "loss", "load"), nothing)
    exec(compile(code, f"example of elasticjob.{name}", "exec"), names)
