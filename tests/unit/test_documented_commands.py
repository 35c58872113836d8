"""The commands and YAML of every page are accepted by what they are for, as far as that needs no
cluster.

The tests of the tutorials run theirs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from elasticjob_api import names
from elasticjob_cli.main import command_line

from tests.support.crd_schema import problems
from tests.support.documented_commands import (
    PAGES,
    REPOSITORY,
    blocks,
    command_lines,
    commands,
)

VALUES = yaml.safe_load((REPOSITORY / "deploy/chart/values.yaml").read_text())
_PHONY = (REPOSITORY / "Makefile").read_text().partition(".PHONY:")[2].partition("\n\n")[0]
TARGETS = set(_PHONY.replace("\\\n", " ").split())
EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def schema_of_spec(kind: str) -> dict[str, Any]:
    definition = yaml.safe_load((REPOSITORY / "crds" / f"{kind.lower()}s.yaml").read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: dict[str, Any] = schema["properties"]["spec"]
    return found


def click_errors() -> type[Exception]:
    """Return the error for a wrong command line, of the click that typer uses."""
    found: type[Exception] = typer.BadParameter.__mro__[1]
    return found


def parse(command: Any, arguments: list[str], parent: Any = None) -> None:
    """Let the command line parse arguments without running the command; exit at a wrong one."""
    context = command.make_context(command.name, list(arguments), parent=parent)
    if hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        _, inner, inner_arguments = command.resolve_command(context, rest)
        parse(inner, inner_arguments, context)


def check_elasticjob(words: list[str]) -> None:
    parse(typer.main.get_command(command_line(words[1:2])), words[1:])


def check_make(words: list[str]) -> None:
    targets = {word for word in words[1:] if "=" not in word}
    assert targets <= TARGETS, "no such target in the Makefile"


def check_pip(words: list[str]) -> None:
    for word in words[2:]:
        for extra in re.findall(r"^(?:elasticjob|\.)\[(.*)\]$", word):
            assert set(extra.split(",")) <= EXTRAS.keys(), "no such extra in pyproject.toml"


def check_helm(words: list[str]) -> None:
    assert (REPOSITORY / words[3] / "Chart.yaml").exists()
    for option, values in pairwise(words):
        if option != "--set":
            continue
        for path in re.findall(r"([\w.]+)=", values):
            value = VALUES
            for key in path.split("."):
                value = value[key]


def check_kubectl(words: list[str]) -> None:
    if words[1] == "elasticjob":
        return check_elasticjob(words[1:])
    for option, path in pairwise(words):
        if option in ("-f", "-k") and re.match(r"(examples|deploy|crds|policies)\b", path):
            assert (REPOSITORY / path).exists(), f"no file {path}"
    return None


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "elasticjob": check_elasticjob,
    "make": check_make,
    "pip": check_pip,
    "helm": check_helm,
    "kubectl": check_kubectl,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_command_has_the_words_that_its_program_knows(page: Path) -> None:
    for block in blocks(page, "console"):
        for line in command_lines(block):
            for words in commands(line):
                if check := CHECKS.get(words[0]):
                    try:
                        check(words)
                    except Exception as error:
                        error.add_note(f"$ {line}")
                        raise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_yaml_is_valid_and_our_objects_have_the_fields_of_their_definitions(
    page: Path,
) -> None:
    for block in blocks(page, "yaml"):
        for found in yaml.safe_load_all(block):
            if not isinstance(found, dict) or found.get("apiVersion") != names.API_VERSION:
                continue
            if found["spec"] != "…":
                assert problems(found["spec"], schema_of_spec(found["kind"])) == [], block


@pytest.mark.parametrize(
    "line",
    [
        "elasticjob submit train.py --colour red",
        'eval "$(elasticjob dev upwards)"',
        "make coffee",
        "pip install 'elasticjob[gui]'",
        "helm install elasticjob deploy/chart --set metrics.everything=true",
        "kubectl apply -f examples/gone.yaml",
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    ((name, *rest),) = commands(line)
    with pytest.raises((AssertionError, KeyError, click_errors())):
        CHECKS[name]([name, *rest])
