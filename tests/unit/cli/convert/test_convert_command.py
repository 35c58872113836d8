"""Tests the command `elasticjob convert`: its files, its report and its exit codes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from elasticjob_api.yaml_documents import read
from elasticjob_cli.main import command_line
from typer.testing import CliRunner

from tests.support.convert import FOLDER
from tests.support.programs import ran

COMMAND = Path(sys.executable).parent / "elasticjob"
LOSSLESS = "kubeflow/mpi-horovod-elastic.yaml"
OF_TWO = "framework_controller/torch-elastic.yaml"


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


def convert(*arguments: object, text: str | None = None) -> Ended:
    """Run the command in this process."""
    result = CliRunner().invoke(
        command_line(["convert"]), ["convert", *map(str, arguments)], input=text
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def lossy() -> str:
    """Return two documents; a field of the second one is lost."""
    return (
        (FOLDER / OF_TWO)
        .read_text()
        .replace("  retryPolicy:", "  ofAnotherVersion: 1\n  retryPolicy:", 1)
    )


@pytest.mark.guarantee("converted-jobs-are-accepted")
def test_the_exit_code_is_3_for_lost_fields_and_strict_counts_all_notes() -> None:
    found = [
        convert("-f", FOLDER / LOSSLESS),
        convert("-f", "-", text=lossy()),
        convert("-f", FOLDER / LOSSLESS, "--strict"),
    ]
    assert [each.returncode for each in found] == [0, 3, 3]
    assert [document["kind"] for document in read(found[1].stdout)] == ["Service", "ElasticJob"]
    assert "document 1, Service pet-etcd: passed through unchanged" in found[1].stderr
    assert "  lost: spec.ofAnotherVersion: " in found[1].stderr
    assert "  invented: " in found[0].stderr


def test_each_object_gets_its_own_file_and_none_is_overwritten(tmp_path: Path) -> None:
    arguments = ("-f", "-", "--to-dir", tmp_path / "new")
    text = lossy()
    assert convert(*arguments, text=text).returncode == 3
    files = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert files == ["elasticjob-pet.yaml", "service-pet-etcd.yaml"]
    (tmp_path / "new" / files[0]).write_text("mine")
    again = convert(*arguments, text=text)
    assert again.returncode == 2
    assert "service-pet-etcd.yaml: exists; remove it, or give --force" in again.stderr
    assert (tmp_path / "new" / files[0]).read_text() == "mine"
    assert convert(*arguments, "--force", text=text).returncode == 3
    assert "kind: ElasticJob" in (tmp_path / "new" / files[0]).read_text()


def test_the_installed_command_exits_with_2_without_a_traceback() -> None:
    found = ran(
        COMMAND, "convert", "-f", "-", given="apiVersion: kubeflow.org/v1\nkind: XGBoostJob"
    )
    assert (found.returncode, found.stdout) == (2, "")
    assert "error: kind: 'XGBoostJob' of 'kubeflow.org/v1' is not supported" in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "error: document 1: not valid YAML"),
        ("", "error: the input has no document"),
        ("- 1", "error: the document: is a list, but must be a map with apiVersion and kind"),
        ("{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ScaleOut, metadata: {name: a}, "
         "spec: {selector: {name: b}, toAdd: {count: many}}}",
         "error: spec.toAdd.count: is 'many', but must be a whole number from 1 to 10000"),
        ("a: {{ .Values.image }}", "render the template first, such as with helm template"),
        ("{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ScaleOut, metadata: {name: a}, "
         "spec: {selector: {name: b}, toAdd: {count: '{{ .Values.n }}'}}}",
         "to 10000; render the template first"),
        ("#" * 1_200_000, "more than 1048576 bytes"),
    ],
)  # fmt: skip
def test_an_unreadable_document_exits_with_2_and_nothing_is_written(
    text: str, message: str
) -> None:
    found = convert("-f", "-", text=text)
    assert found.returncode == 2
    assert message in found.stderr
    assert found.stdout == ""


def test_the_report_contains_no_terminal_control_characters() -> None:
    escape = "\\e[2J"
    found = convert(
        "-f",
        "-",
        text=f'{{apiVersion: kubeflow.org/v1, kind: "{escape}", metadata: {{name: "{escape}"}}}}',
    )
    assert found.returncode == 2
    assert "\x1b" not in found.stdout + found.stderr


def test_a_text_of_a_chart_is_lost_until_it_is_rendered() -> None:
    text = (FOLDER / "kubeflow/pytorch-simple.yaml").read_text()
    text = text.replace("registry.example/pytorch-mnist:1", "'{{ .Values.image }}'")
    found = convert("-f", "-", text=text)
    assert found.returncode == 3
    assert "containers[0].image: is a template of Helm: render it first" in found.stderr
    text = text.replace("{{ .Values.image }}", "x").replace("--epochs=1", "'--form={{ user }}'")
    assert convert("-f", "-", text=text).returncode == 0


def test_a_missing_file_exits_with_2(tmp_path: Path) -> None:
    found = convert("-f", tmp_path / "nothing.yaml")
    assert (found.returncode, found.stdout) == (2, "")
    assert "nothing.yaml: No such file or directory; give a file that can be read" in found.stderr


def test_objects_in_a_list_are_converted_one_by_one() -> None:
    items = """
items:
- apiVersion: kai.alibabacloud.com/v1alpha1
  kind: ScaleOut
  metadata: {name: a}
  spec: {selector: {name: b}, toAdd: {count: 1}}
"""
    found = convert("-f", "-", text=f"apiVersion: v1\nkind: List{items}")
    assert found.returncode == 0
    assert read(found.stdout)[0]["apiVersion"] == "elasticjob.dev/v1alpha1"
