"""Lists what the jobs of other operators can say, from the operators' own repositories.

`python -m tools.peer_fields NAME GIT_DIRECTORY` writes tests/unit/cli/convert/peers/NAME.txt: the
fields of the peer's CRDs, the options of its parsers, its annotations and variables, as names
alone. A test compares them with the tables of the converter, so that a peer's new field is noticed
when its list is written again. NAME is one of the keys of `SOURCES`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "tests" / "unit" / "cli" / "convert" / "peers"


@dataclass(frozen=True)
class Source:
    """A file of a peer, and how it is read.

    Attributes:
        form: crd, go (the type `FrameworkSpec`), options (of an argparse parser), or a pattern
            whose first group is a name.
        title: the title of the list; a CRD has its own.
        revision: the commit or branch to read; a peer may keep its older version on a branch.
    """

    path: str
    form: str
    title: str = ""
    revision: str = "HEAD"


def _crds(pattern: str, *names: str, revision: str = "HEAD") -> tuple[Source, ...]:
    return tuple(Source(pattern.format(name), "crd", revision=revision) for name in names)


_MASTER_OPTION = r'^\t(?:\w+Arg|serviceType)\s+= "([a-z_]+)"'
_CONSTANTS = "pkg/apis/frameworkcontroller/v1/constants.go"
_LAST_SCALE_PLANS = "a8b4f3845e0668acbb019e279417cbb77db884c9"
"""The last commit of DLRover with the CRD of ScalePlans, which its master still creates."""
SOURCES: Mapping[str, tuple[Source, ...]] = MappingProxyType(
    {
        "et_operator": (
            *_crds(
                "config/crd/bases/kai.alibabacloud.com_{}.yaml",
                "trainingjobs",
                "scaleins",
                "scaleouts",
            ),
            Source(
                "pkg/controllers/api/v1/constants.go", r'= "([a-z.-]+/[a-z-]+)"$', "annotations"
            ),
        ),
        "dlrover": (
            *_crds("go/elasticjob/config/crd/bases/elastic.iml.github.io_{}.yaml", "elasticjobs"),
            *_crds(
                "go/elasticjob/config/crd/bases/elastic.iml.github.io_{}.yaml",
                "scaleplans",
                revision=_LAST_SCALE_PLANS,
            ),
            Source("go/elasticjob/pkg/controllers/master.go", _MASTER_OPTION, "annotations"),
            Source("dlrover/trainer/torch/elastic_run.py", "options", "dlrover-run"),
            Source("dlrover/python/master/args.py", "options", "master"),
        ),
        "training_operator": _crds(
            "manifests/base/crds/kubeflow.org_{}.yaml",
            "jaxjobs",
            "mpijobs",
            "paddlejobs",
            "pytorchjobs",
            "tfjobs",
            "xgboostjobs",
            revision="release-1.9",
        ),
        "mpi_operator": _crds("manifests/base/kubeflow.org_{}.yaml", "mpijobs"),
        "trainer": _crds(
            "manifests/base/crds/trainer.kubeflow.org_{}.yaml",
            "trainjobs",
            "clustertrainingruntimes",
        ),
        "framework_controller": (
            Source("pkg/apis/frameworkcontroller/v1/types.go", "go", "Framework"),
            Source(_CONSTANTS, r'= "(FC_[A-Z_]+)"', "variables"),
        ),
        "pytorch": (Source("torch/distributed/run.py", "options", "torchrun"),),
    }
)


def names(text: str, source: Source) -> dict[str, list[str]]:
    """Return the names in a file, by the title of their list."""
    if source.form == "crd":
        definition = yaml.safe_load(text)
        kind = definition["spec"]["names"]["kind"]
        return {
            f"{kind} {definition['spec']['group']}/{version['name']}": _leaves(
                version["schema"]["openAPIV3Schema"]
            )
            for version in definition["spec"]["versions"]
        }
    if source.form == "go":
        return {source.title: sorted(_go_fields(text, "FrameworkSpec", "spec"))}
    if source.form == "options":
        return {source.title: sorted(set(_options(text)))}
    return {source.title: sorted(set(re.findall(source.form, text, re.MULTILINE)))}


def _leaves(schema: dict[str, Any]) -> list[str]:
    spec = schema["properties"]["spec"]
    return sorted(set(_below(spec, "spec")))


def _below(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the paths of the fields that have none below them; a type of Kubernetes is one."""
    if _is_of_kubernetes(schema):
        yield path
        return
    inner = {f"{path}.{name}": field for name, field in schema.get("properties", {}).items()}
    element = schema.get("items") or schema.get("additionalProperties")
    if isinstance(element, dict):
        if not _has_fields(element) or _is_of_kubernetes(element):
            yield path
            return
        inner = {path + ("[]" if "items" in schema else ".<name>"): element}
    if not inner:
        yield path
    for name, field in inner.items():
        yield from _below(field, name)


def _has_fields(schema: dict[str, Any]) -> bool:
    return bool({"properties", "items", "additionalProperties"} & set(schema))


def _is_of_kubernetes(schema: dict[str, Any]) -> bool:
    fields = schema.get("properties", {})
    of_a_template = fields.get("spec", {}).get("properties", {})
    marks = {"valueFrom", "containerResource", "limits", "initContainers"}
    return bool(marks & (set(fields) | set(of_a_template)))


def _go_fields(text: str, kind: str, path: str) -> Iterator[str]:
    [body] = re.findall(rf"^type {kind} struct {{$(.*?)^}}$", text, re.MULTILINE | re.DOTALL)
    for found, name in re.findall(r'^\s+\w+\s+(\S+)\s+`json:"(\w+)', body, re.MULTILINE):
        inner = found.lstrip("*[]")
        where = f"{path}.{name}" + ("[]" if found.startswith("[]") else "")
        if re.search(rf"^type {inner} struct", text, re.MULTILINE):
            yield from _go_fields(text, inner, where)
        else:
            yield where


def _options(text: str) -> Iterator[str]:
    """Yield the options of a parser, with dashes, and with VALUE if they have one."""
    for call in text.split("add_argument(")[1:]:
        option = re.search(r'"--([\w-]+)"', call)
        if option:
            flag = re.search(r"action=(check_env|\"store_true\")", call)
            yield f"--{option[1].replace('_', '-')}" + ("" if flag else " VALUE")


def _git(directory: str, *arguments: str) -> str:
    command = ["git", "-C", directory, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def write(name: str, directory: str) -> None:
    """Write the lists of a peer from its git directory."""
    lines = []
    for source in SOURCES[name]:
        commit = _git(directory, "rev-parse", source.revision).strip()
        text = _git(directory, "show", f"{source.revision}:{source.path}")
        for title, found in names(text, source).items():
            lines += [f"# {title}: {source.path} at {commit}", *found, ""]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.txt").write_text("\n".join(lines).rstrip("\n") + "\n")


if __name__ == "__main__":
    write(*sys.argv[1:])
