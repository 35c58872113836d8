"""Checks that the files in locks/ match pyproject.toml, without a package index."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[3]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
LOCKS = {path.stem: path.read_text() for path in (REPOSITORY / "locks").glob("*.txt")}
NOT_OF_THE_OPERATOR = {"grpcio", "psutil", "py-spy"}


def pins(lock: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Return the version and hashes of each package, by its name."""
    found = re.findall(
        r"^([A-Za-z0-9._-]+)==(\S+)(.*?)(?=^\S|\Z)", LOCKS[lock], re.MULTILINE | re.DOTALL
    )
    return {canonicalize_name(name): (version, _hashes(rest)) for name, version, rest in found}


def _hashes(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"--hash=(sha256:[0-9a-f]{64})", text))


def requirements_of(extra: str) -> dict[str, Requirement]:
    """Return the project's requirements with one of its extras, by name."""
    asked: dict[str, Requirement] = {}
    for text in [*PROJECT["dependencies"], *EXTRAS[extra]]:
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"]:
            for other in requirement.extras:
                asked |= requirements_of(other)
        else:
            asked[canonicalize_name(requirement.name)] = requirement
    return asked


def with_dependencies(requirements: Iterable[Requirement]) -> set[str]:
    """Return the names of all packages that these need, from the installed packages' metadata."""
    found: set[str] = set()
    waiting = [(canonicalize_name(each.name), frozenset(each.extras)) for each in requirements]
    while waiting:
        name, extras = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for text in requires(name) or ():
            inner = Requirement(text)
            if inner.marker is None or any(
                inner.marker.evaluate({"extra": extra}) for extra in (*extras, "")
            ):
                waiting.append((canonicalize_name(inner.name), frozenset(inner.extras)))
    return found


@pytest.mark.parametrize("extra", ["dev", "operator", "master", "examples"])
def test_a_lock_pins_all_required_packages_with_hashes(
    extra: str,
) -> None:
    pinned = pins(extra)
    without = NOT_OF_THE_OPERATOR if extra == "operator" else set()
    asked = {name: each for name, each in requirements_of(extra).items() if name not in without}
    for name, requirement in asked.items():
        assert name in pinned, f"locks/{extra}.txt lacks {requirement}: run `make lock`"
        version, hashes = pinned[name]
        assert requirement.specifier.contains(version), (
            f"locks/{extra}.txt has {name} {version}, not {requirement}"
        )
        assert hashes
    needed = with_dependencies(asked.values())
    assert needed - set(pinned) == set(), "run `make lock`"


@pytest.mark.parametrize("lock", ["operator", "master", "examples"])
def test_images_get_the_versions_that_the_tests_use(lock: str) -> None:
    tested = pins("dev")
    assert {name: pin for name, pin in pins(lock).items() if tested.get(name) != pin} == {}


def test_no_lock_names_a_package_index() -> None:
    assert [
        name for name, text in LOCKS.items() if re.search(r"https?://|index-url|find-links", text)
    ] == []


def test_the_client_can_be_installed_beside_kubeflows_sdk() -> None:
    accepted_by_kubeflow = "35.0.0"  # kubeflow 0.5.0: kubernetes<36.0.0,>=27.2.0
    assert requirements_of("client")["kubernetes"].specifier.contains(accepted_by_kubeflow)


def test_images_contain_no_client_that_only_a_kubeconfig_needs() -> None:
    assert "kubernetes" in pins("dev")
    assert {"kubernetes", "pip", "setuptools"} & (
        pins("operator").keys() | pins("master").keys()
    ) == set()
    assert NOT_OF_THE_OPERATOR & pins("operator").keys() == set()
