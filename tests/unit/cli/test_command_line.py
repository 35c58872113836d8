"""The list of commands."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import elasticjob_cli
import pytest
from elasticjob_cli.common.arguments import plain_values
from elasticjob_cli.main import COMMANDS, GROUPS, command_line
from elasticjob_operator.certificates import new_job_secrets
from typer.testing import CliRunner

from tests.support.played_api import NO_REQUESTS, PlayedApi, listed, of_job, played_job
from tests.support.programs import python, ran
from tests.support.thorough import some_of


def test_the_list_of_commands_imports_none_of_them() -> None:
    script = (
        "import sys; from elasticjob_cli.main import run_command as main\n"
        "sys.argv[1:] = ['--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.startswith(('elasticjob', 'rich.', 'kube'))))"
    )
    below = ("common", "common.arguments", "common.streams", "main", "parameters")
    own = ["elasticjob_cli", *(f"elasticjob_cli.{module}" for module in below)]
    assert python(script).stdout.splitlines()[-1] == str(own)


def plain_command(name: str) -> Callable[..., None]:
    module, _, function = COMMANDS[name][0].partition(":")
    command: Callable[..., None] = getattr(import_module(f"elasticjob_cli.{module}"), function)
    return command


def test_the_certificates_of_the_machine_are_not_read_to_import_a_command(tmp_path: Path) -> None:
    file = tmp_path / "authorities.pem"
    file.write_bytes(new_job_secrets("job", "ns")["ca.crt"])
    script = (
        "import os, ssl; from elasticjob_cli.main import command_line; command_line(['exec'])\n"
        "from aiohttp.connector import _SSL_CONTEXT_VERIFIED as default\n"
        "print(len(default.get_ca_certs()), len(ssl.create_default_context().get_ca_certs()))"
    )
    done = python(script, SSL_CERT_FILE=file, SSL_CERT_DIR=tmp_path)
    assert done.stdout == "0 1\n", done.stderr


SLOW = ("grpc", "google.protobuf", "cloudpickle", "kubernetes", "numpy", "pygments", "markdown_it")
NOT_TO_READ_A_LINE = (
    *("typer", "rich", "pydantic", "aiohttp", "importlib.metadata", "secrets"),
    *("csv", "email", "gzip", "statistics"),
)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("list -n ns", "no jobs; -A lists those of all namespaces"),
        ("list -A -o wide --selector=a=b", "no jobs"),
        ("wait a -n ns --for running --timeout 1.5", ""),
        ("logs a -n ns --tail 5", "error: job ns/a has no pods"),
        ("describe a -n ns", ""),
        ("plans a -n ns", "no plans yet"),
        ("list --local", "nothing runs here; `elasticjob run` begins it"),
        ("--version", ""),
    ],
)
async def test_a_plain_command_line_imports_only_what_it_needs(
    line: str, said: str, tmp_path: Path
) -> None:
    grpc = () if line.startswith("describe") else SLOW
    script = (
        "import sys; from elasticjob_cli.main import run_command as main\n"
        "try: main()\n"
        f"finally: print([m for m in {(*grpc, *NOT_TO_READ_A_LINE)} if m in sys.modules])"
    )
    lists = {path: listed() for path in ("GET ", "GET elasticjobs", "GET pods", "GET events")}
    async with PlayedApi(of_job(played_job()) | NO_REQUESTS | lists).cluster(tmp_path):
        config = tmp_path / "kubeconfig"
        done = await asyncio.to_thread(
            python, script, *line.split(), KUBECONFIG=config, ELASTICJOB_RUNS=tmp_path
        )
    assert done.stderr.startswith(said), done.stderr
    assert bool(done.stderr) == bool(said), done.stderr
    assert done.stdout.endswith("[]\n"), done.stdout


def test_the_runs_of_this_machine_are_listed_without_what_only_a_cluster_needs(
    tmp_path: Path,
) -> None:
    script = (
        "import sys; from elasticjob_cli.main import run_command as main\n"
        "sys.argv[1:] = ['list', '--local']; main()\n"
        "slow = ('asyncio', 'ssl', 'json', 'logging', 'msgspec', 'elasticjob_kube')\n"
        "print([name for name in slow if name in sys.modules])"
    )
    assert python(script, ELASTICJOB_RUNS=tmp_path).stdout == "[]\n"


@pytest.mark.parametrize(
    "line",
    [
        "list",
        "list -A -o wide --phase=running -l a=b",
        "list --local -o json",
        "describe a --context c --kubeconfig /k",
        "logs a -f --rank 0,1 --tail 5 --timestamps",
        "wait a --for step=3 --timeout 1.5",
        "scale a +2 --wait",
        "scale a --remove a-worker-0 --remove a-worker-1",
        "delete a b c",
        "stacks a --rank 0 --rank 3",
        "query a members --watch",
        "dashboard --port 0",
        "top --once",
        "submit t.py --image i --workers 2:8 --env A=b --env C=d",
    ],
)
def test_a_line_read_without_typer_gives_the_values_that_typer_gives(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, *words = line.split()
    given: list[dict[str, object]] = []
    command = plain_command(name)

    @functools.wraps(command)
    def record(**values: object) -> None:
        given.append({key: value or None for key, value in values.items()})

    monkeypatch.setattr("elasticjob_cli.main._imported", lambda _: record)
    result = CliRunner().invoke(command_line([name]), [name, *words])
    assert result.exit_code == 0, result.output
    values = plain_values(command, words)
    assert values is not None
    assert given == [{key: value or None for key, value in values.items()}]


@pytest.mark.parametrize(
    "line",
    [
        *("list -h", "list -Ao wide", "list --nosuch", "list a", "list -o wid", "list --phase"),
        *("logs", "logs a --tail -1", "logs a --tail x", "scale a -1", "exec a -- true"),
        *("dashboard --port 65536", "logs a --no-timestamps", "list -n=team"),
    ],
)
def test_typer_reads_help_mistakes_and_short_forms(line: str) -> None:
    name, *words = line.split()
    assert plain_values(plain_command(name), words) is None


WITHOUT_A_MASTER = (
    *("submit", "list", "logs", "exec", "scale", "suspend", "resume", "stop", "delete", "wait"),
    *("plans", "events", "doctor"),
)


@pytest.mark.parametrize("name", some_of(WITHOUT_A_MASTER, every=5))
def test_a_command_that_queries_no_master_does_not_import_grpc(name: str) -> None:
    script = (
        "import sys; from elasticjob_cli.main import command_line\n"
        f"command_line([{name!r}]); print([m for m in {SLOW} if m in sys.modules])"
    )
    assert python(script).stdout == "[]\n"


def test_ranks_are_asked_for_without_what_only_stored_answers_need() -> None:
    script = (
        "import sys, elasticjob_client.answers; print('google.protobuf.json_format' in sys.modules)"
    )
    assert python(script).stdout == "False\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_help_begins_with_the_line_of_the_list(name: str) -> None:
    shown = CliRunner().invoke(command_line([name]), [name, "--help"]).output.splitlines()
    assert shown[2].strip() == COMMANDS[name][1]


def test_the_list_fits_a_terminal_of_80_columns() -> None:
    shown = CliRunner().invoke(command_line([]), ["--help"], env={"COLUMNS": "80"}).output
    width = max(map(len, COMMANDS | GROUPS))
    for name, (_, line) in (COMMANDS | GROUPS).items():
        assert f"  {name:{width}}  {line}\n" in shown


@pytest.mark.parametrize("arguments", [["--version"], ["version"]])
def test_the_version_is_a_command_and_an_option(arguments: list[str]) -> None:
    shown = CliRunner().invoke(command_line(arguments), arguments)
    assert shown.exit_code == 0
    assert shown.output.startswith("elasticjob 0.")


def test_ctrl_c_while_a_command_is_imported_prints_nothing() -> None:
    script = (
        "import sys\n"
        "class CtrlC:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'msgspec': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, CtrlC())\n"
        "from elasticjob_cli.main import main; main()"
    )
    done = python(script, "list")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_nothing_slow_is_imported_before_ctrl_c_is_handled() -> None:
    """A Ctrl-C before `main` prints a traceback, so what takes long is imported later."""
    script = (
        "import sys; before = set(sys.modules); import elasticjob_cli.main\n"
        "print((set(sys.modules) - before) & {'logging', 'asyncio', 'typer', 'inspect'})"
    )
    packages = Path(elasticjob_cli.__file__).parents[1]
    done = ran(sys.executable, "-S", "-c", script, PYTHONPATH=packages)
    assert done.stdout == "set()\n"


def test_a_command_that_does_not_exist_is_a_usage_error() -> None:
    result = CliRunner().invoke(command_line(["lst"]), ["lst"])
    assert result.exit_code == 2
    assert "Did you mean 'list'" in result.output


@pytest.mark.parametrize(
    "line",
    [
        "nosuch",
        "list --phase nope",
        "list -o nonsense",
        "wait a --timeout abc",
        "wait a --for nope",
        "scale a many",
        "scale a",
        "scale a 3 --remove a-worker-0",
        "logs a --rank x",
        "logs a --rank 1 --all",
        "logs a --since 4y",
        "events local/a",
        "exec a --pod a-worker-0 --rank 1 -- true",
        "init --framework custom --name a/b",
        "init --framework custom --name Bad_Name",
        "submit nosuch.yaml",
        "submit nosuch.py --image i",
        "submit train.py --dry-run client",
        "submit train.py --image i --workers x",
        "submit train.py --image i --memory 1X",
        "submit train.py --image i --cpu x",
        "submit train.py --image i --env x",
        "history a -o csv --watch",
        "run -n 0 train.py",
        "run --name A train.py",
        "run -n 2 nosuch.py",
        "run --framework tensorflow nosuch",
    ],
)
def test_a_wrong_command_line_is_a_usage_error_before_anything_is_asked_or_started(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    arguments = line.split()
    result = CliRunner(env={"KUBECONFIG": "nosuch"}).invoke(
        command_line(arguments[:1]), arguments, standalone_mode=True
    )
    assert result.exit_code == 2, result.output
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("scale nobody", 2, "give either a size or --remove"),
        ("scale nobody many", 2, "size 'many' is not valid: give the new size (8)"),
        ("wait nobody --for=done", 2, "'done' is not a phase of a job: give pending, "),
        ("list --phase=busy", 2, "'busy' is not a phase of a job"),
        ("list --context=else", 1, "no usable kubeconfig: "),
    ],
)
def test_an_impossible_request_prints_one_line_with_the_remedy_and_no_traceback(
    line: str, code: int, said: str
) -> None:
    arguments = line.split()
    environ = {"KUBECONFIG": "/nonexistent"}
    result = CliRunner(env=environ).invoke(command_line(arguments[:1]), arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1)
    assert result.stderr.startswith("error: ")
    assert said in result.stderr


def test_a_wrong_choice_is_refused_with_the_choices_alone() -> None:
    result = CliRunner().invoke(command_line(["list"]), ["list", "-o", "nonsense"])
    assert "Invalid value for '--output' / '-o': 'nonsense' is not one of" in result.output


@pytest.mark.parametrize(
    ("line", "meant"), [("init --framework torch", "pytorch"), ("list -o jsn", "json")]
)
def test_a_wrong_choice_gets_a_suggestion(line: str, meant: str) -> None:
    arguments = line.split()
    result = CliRunner().invoke(command_line(arguments[:1]), arguments)
    assert result.exit_code == 2
    assert result.output.endswith(f". Did you mean {meant}?\n")


@pytest.mark.parametrize("line", ["-h", "list -h", "scale -h", "run -h", "dev -h", "dev up -h"])
def test_help_has_a_short_option(line: str) -> None:
    arguments = line.split()
    result = CliRunner().invoke(command_line(arguments[:1]), arguments)
    assert result.exit_code == 0
    assert result.output.startswith("Usage: ")


def test_the_options_of_a_command_to_run_are_its_own(tmp_path: Path) -> None:
    arguments = ["run", str(tmp_path / "nosuch"), "-h"]
    result = CliRunner().invoke(command_line(["run"]), arguments)
    assert result.exit_code == 2
    assert "there is no such file or program" in result.output


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (
            f"submit {__file__} --image i --dry-run client -o yaml >/dev/full",
            1,
            "error: the output cannot be written: No space left on device\n",
        ),
        (f"submit {__file__} --image i --dry-run client -o yaml >&-", 0, ""),
        ("doctor --kubeconfig /nonexistent >&-", 1, ""),
    ],
    ids=["full", "closed", "closed for doctor"],
)
def test_output_that_cannot_be_written_is_a_line_and_closed_output_is_no_error(
    line: str, code: int, said: str
) -> None:
    done = ran("sh", "-c", f'"$0" -m elasticjob_cli.main {line}', sys.executable)
    assert (done.returncode, done.stderr) == (code, said)
