"""A run on this machine: its sizes, workers, environments and folder."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.frameworks.peer import meeting_port
from elasticjob_cli.common.local_runs import RunInfo, check_name, find, runs
from elasticjob_cli.main import command_line
from elasticjob_cli.run.environment import (
    Run,
    agent_environment,
    meeting_ports,
    own_gpus,
    worker_address,
)
from elasticjob_cli.run.folder import claimed, name_from_command, remove, write_info
from elasticjob_cli.run.launch import Wanted, check_command, check_machine
from elasticjob_cli.run.output import coloured_rank, rank_of
from elasticjob_cli.run.sizes import Bounds, initial_size, resized
from elasticjob_cli.run.workers import Drain, Finish, Start, Workers, ended, scale, stop
from elasticjob_client.errors import ClientError
from elasticjob_client.scaling import parse_size
from elasticjob_operator.core.manifests.pods import agent_variables
from typer.testing import CliRunner

RUN = Run(
    name="digits",
    uid="run-digits",
    framework="pytorch",
    command=["python", "train.py"],
    subnet="127.7.7",
    marker="elasticjob-run/1",
    token="t",
    authority="a",
    certificate="c",
    key="k",
    least=1,
    most=4,
    restart_limit=3,
)


@pytest.fixture
def short_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ej-") as folder:
        yield Path(folder)


def begun(size: int) -> Workers:
    return scale(Workers(), size)[0]


@pytest.mark.parametrize(
    ("number", "workers", "size", "bounds"),
    [
        (None, None, 1, Bounds(1, 128)),
        (2, None, 2, Bounds(1, 128)),
        (None, "1:4", 1, Bounds(1, 4)),
        (None, "4", 4, Bounds(1, 128)),
        (2, "1:4", 2, Bounds(1, 4)),
    ],
)
def test_a_run_starts_with_the_given_number_or_with_the_fewest_workers(
    number: int | None, workers: str | None, size: int, bounds: Bounds
) -> None:
    assert initial_size(number, workers) == (size, bounds)


@pytest.mark.parametrize(
    ("number", "workers", "said"),
    [
        (0, None, "0 workers: not between 1 and 128"),
        (5, "1:4", "5 workers: not between 1 and 4"),
        (None, "129", "129 workers: not between 1 and 128"),
        (None, "4:1", "the least, 4, is more than the most, 1"),
        (None, "1:129", "--workers 1:129: one machine has at most 128"),
        (2, "4", "-n 2 and --workers 4: give one of them"),
        (None, "four", "give a number (4), or the least and the most (2:8)"),
    ],
)
def test_a_size_out_of_bounds_is_refused_with_its_value_and_the_bound(
    number: int | None, workers: str | None, said: str
) -> None:
    with pytest.raises(ClientError, match=re.escape(said)):
        initial_size(number, workers)


def test_sizes_are_those_of_the_command_scale() -> None:
    present = ["digits-worker-0", "digits-worker-1"]
    bounds = Bounds(1, 3)
    assert [
        resized(parse_size(text, role="worker"), present, bounds) for text in ("3", "+1", "-1")
    ] == [3, 3, 1]
    for text in ("4", "+2", "-2", "0"):
        with pytest.raises(ClientError, match=r"this run may have 1 to 3 \(--workers MIN:MAX"):
            resized(parse_size(text, role="worker"), present, bounds)


def test_the_lowest_free_indices_join_and_the_highest_leave_unless_others_are_named() -> None:
    workers, actions = scale(begun(2), 4)
    assert actions == (Start(2, 0), Start(3, 0))
    workers, actions = scale(workers, 3, leaving=[1])
    assert actions == (Drain(1),)
    assert scale(workers, 2)[1] == (Drain(3),)
    workers, _ = ended(workers, 1, names.EXIT_DRAINED)
    assert scale(workers, 4)[1] == (Start(1, 1),), (
        "the name of the one that has left is not used again"
    )


def test_an_index_whose_worker_still_leaves_is_not_free() -> None:
    workers, _ = scale(begun(2), 1)
    assert scale(workers, 2)[1] == (Start(2, 0),)


def test_a_run_has_succeeded_when_all_of_its_workers_have() -> None:
    workers, actions = ended(begun(2), 0, 0)
    assert actions == ()
    assert ended(workers, 1, 0)[1] == (Finish(succeeded=True),)


@pytest.mark.parametrize("code", [1, 126, 127, 137])
def test_an_agent_that_ends_with_the_code_of_its_process_ends_the_run(code: int) -> None:
    (finish,) = ended(begun(2), 1, code)[1]
    assert isinstance(finish, Finish)
    assert not finish.succeeded
    assert finish.why.startswith("worker 1 has failed: ")


def test_a_failed_worker_is_named_with_the_rank_that_its_last_words_carry() -> None:
    words = "[1] Traceback (most recent call last):\n[1] ValueError: no data\n"
    (finish,) = ended(begun(2), 0, 1, rank=rank_of(words))[1]
    assert isinstance(finish, Finish)
    assert finish.why == "worker 0 (rank 1) has failed: exit code 1"
    assert rank_of("no rank") is None


@pytest.mark.parametrize("code", [-9, -15, names.EXIT_DRAINED])
def test_a_worker_whose_agent_is_killed_is_replaced_as_often_as_allowed(code: int) -> None:
    workers = begun(1)
    for restart in range(1, 4):
        workers, actions = ended(workers, 0, code)
        assert actions == (Start(0, restart),)
    assert [type(action) for action in ended(workers, 0, code)[1]] == [Finish]


def test_a_run_that_is_stopped_drains_all_starts_none_and_has_not_succeeded() -> None:
    workers, actions = stop(begun(2))
    assert actions == (Drain(0), Drain(1))
    workers, actions = ended(workers, 0, -9)
    assert actions == ()
    assert ended(workers, 1, 0)[1] == (Finish(succeeded=False),)


def test_an_agent_gets_all_variables_of_an_agent_in_a_pod() -> None:
    template = {"spec": {"containers": [{"name": "train", "command": ["python"]}]}}
    spec = {"framework": "pytorch", "replicaSpecs": {"worker": {"template": template}}}
    job = msgspec.convert(
        {"metadata": {"name": "digits", "namespace": "n", "uid": "u"}, "spec": spec}, ElasticJob
    )
    in_a_pod = {
        each["name"]: each.get("value")
        for each in agent_variables(job, "worker", 2, 1, {"name": "train"})
    }
    here = agent_environment(RUN, 2, 1, {}, files="/f", last_words="/words", gpus=[])
    assert in_a_pod.keys() - here.keys() == {names.ENV_NODE_NAME}
    same = (
        names.ENV_ROLE,
        names.ENV_INDEX,
        names.ENV_INCARNATION,
        names.ENV_FRAMEWORK,
        names.ENV_DRAIN_SECONDS,
    )
    assert [here[name] for name in same] == [in_a_pod[name] for name in same]
    assert here[names.ENV_POD_NAME] == "digits-worker-2-1"
    assert here[names.ENV_POD_IP] == worker_address("127.7.7", 2)


@pytest.mark.parametrize("standby", [True, False])
def test_a_run_keeps_processes_in_standby_unless_it_is_asked_not_to(*, standby: bool) -> None:
    run = replace(RUN, standby=standby)
    here = agent_environment(run, 0, 0, {}, files="/f", last_words="/words", gpus=[])
    assert here.get(names.ENV_STANDBY) == ("Always" if standby else None)


def test_variables_of_an_enclosing_run_are_not_inherited_and_all_others_are() -> None:
    outer = {
        names.ENV_RANK: "7",
        names.ENV_SOCKET: "/outer",
        "PATH": "/bin",
        "PYTHONUNBUFFERED": "",
    }
    here = agent_environment(RUN, 0, 0, outer, files="/f", last_words="/words", gpus=[])
    assert {names.ENV_RANK, names.ENV_SOCKET}.isdisjoint(here)
    assert (here["PATH"], here["PYTHONUNBUFFERED"]) == ("/bin", "")


@pytest.mark.parametrize(
    ("gpus", "most", "shares"),
    [
        (["0", "1", "2", "3"], 4, [["0"], ["1"], ["2"], ["3"]]),
        (["4", "5", "6", "7"], 2, [["4", "5"], ["6", "7"]]),
        (["0", "1"], 4, [["0"], ["1"], ["0"], ["1"]]),
        (["0", "1", "2"], 1, [["0", "1", "2"]]),
    ],
)
def test_gpus_are_divided_by_the_most_workers(
    gpus: list[str], most: int, shares: list[list[str]]
) -> None:
    assert [own_gpus(gpus, index, most) for index in range(len(shares))] == shares


def test_workers_are_shown_their_gpus_only() -> None:
    here = agent_environment(
        RUN, 1, 0, {"CUDA_VISIBLE_DEVICES": "2,3"}, files="/f", last_words="/words", gpus=["2", "3"]
    )
    assert here["CUDA_VISIBLE_DEVICES"] == "3"


def test_the_ports_at_which_workers_meet_are_those_of_the_framework() -> None:
    assert meeting_ports("pytorch", "127.7.7", 1) == {meeting_port("127.7.7.10", 29500)}
    assert meeting_ports("custom", "127.7.7", 4) == set()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py", "--lr", "1"], "train"),
        (["/some/Fine_Tune.py"], "fine-tune"),
        (["python", "-m", "examples.digits.train"], "train"),
        (["/bin/sh", "-c", "true"], "sh"),
        (["./123"], "run"),
    ],
)
def test_a_run_has_the_name_of_its_script(command: list[str], name: str) -> None:
    assert name_from_command(command) == name
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "1a", "a/b", "a-", "a" * 41, ".."])
def test_a_name_that_is_not_a_label_is_refused(name: str) -> None:
    with pytest.raises(ClientError, match="at most 40 lower-case letters"):
        check_name(name)


def test_a_folder_is_found_while_it_is_held_and_removed_by_the_next_run_if_its_holders_were_killed(
    short_path: Path,
) -> None:
    base = short_path / "runs"
    info = RunInfo("train", 1, 0.0, [], "jax", "127.1.1.1:1", "t", "a")
    with claimed(base, "train", exact=False) as first:
        write_info(first.folder, info)
        assert find(base, "train") == info
        assert (
            first.folder.stat().st_mode & 0o777,
            (first.folder / "run.json").stat().st_mode & 0o777,
        ) == (
            0o700,
            0o600,
        )
        with claimed(base, "train", exact=False) as second:
            assert second.name == "train-2"
        with (
            pytest.raises(ClientError, match="there is a run train already"),
            claimed(base, "train", exact=True),
        ):
            pass
    assert (find(base, "train"), runs(base)) == (None, [])
    with claimed(base, "train", exact=True) as again:
        assert not (again.folder / "run.json").exists()
        assert not (base / "train-2").exists()


def test_the_last_run_removes_the_folder_of_all(short_path: Path) -> None:
    base = short_path / "runs"
    with (
        claimed(base, "train", exact=False) as first,
        claimed(base, "train", exact=False) as second,
    ):
        remove(first.folder)
        assert [path.name for path in base.glob("[a-z]*")] == ["train-2"]
        remove(second.folder)
        assert not base.exists()


def test_a_folder_that_others_can_enter_is_not_used(short_path: Path) -> None:
    base = short_path / "runs"
    base.mkdir()
    base.chmod(0o755)
    with (
        pytest.raises(ClientError, match="not a private folder of yours"),
        claimed(base, "train", exact=False),
    ):
        pass
    (short_path / "link").symlink_to(short_path)
    with (
        pytest.raises(ClientError, match="not a private folder of yours"),
        claimed(short_path / "link", "train", exact=False),
    ):
        pass
    assert runs(base) == []


def test_a_folder_too_long_for_a_socket_is_refused(short_path: Path) -> None:
    with (
        pytest.raises(ClientError, match="too long"),
        claimed(short_path / ("x" * 100), "train", exact=False),
    ):
        pass


def test_a_run_that_cannot_train_is_refused() -> None:
    check_machine("linux", "tensorflow")
    with pytest.raises(
        ClientError, match="--framework mxnet needs scheduler and server beside the workers"
    ):
        check_machine("linux", "mxnet")
    with pytest.raises(ClientError, match="needs Linux"):
        check_machine("darwin", "jax")


def test_torchruns_own_world_is_refused_with_the_options_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "torchrun").touch(mode=0o755)
    command = ["torchrun", "--nnodes=1:4", "--max_restarts=3", "train.py"]
    check_command("custom", command)
    check_command("pytorch", ["torchrun", "train.py"])
    with pytest.raises(ClientError) as refused:
        check_command("pytorch", command)
    assert str(refused.value) == (
        "torchrun: the agent sets '--nnodes=1:4', '--max_restarts=3' for torchrun in each world; "
        "remove them, and set "
        "--workers of elasticjob run in place of --nnodes, --restart-limit of elasticjob run in "
        "place of --max_restarts"
    )


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["train.py", "--", "--lr", "3"], ["train.py", "--lr", "3"]),
        (["--", "train.py", "--", "--lr", "3"], ["train.py", "--lr", "3"]),
        (["train.py", "--lr", "3", "--", "a"], ["train.py", "--lr", "3", "--", "a"]),
        (["train.py", "--", "--", "a"], ["train.py", "--", "a"]),
        (["--", "torchrun", "--", "train.py"], ["torchrun", "--", "train.py"]),
    ],
)
def test_a_separator_directly_after_a_script_is_not_an_argument_of_the_script(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], command: list[str]
) -> None:
    launched = []

    def launch(wanted: Wanted) -> int:
        launched.append(wanted)
        return 0

    monkeypatch.setattr("elasticjob_cli.run.launch.launch", launch)
    answer = CliRunner().invoke(command_line(["run"]), ["run", *arguments])
    assert answer.exit_code == 0, answer.output
    assert [list(wanted.command) for wanted in launched] == [command]


def test_only_the_rank_at_the_beginning_of_a_line_is_coloured() -> None:
    assert coloured_rank(b"[0] a [1] b") == b"\x1b[36m[0] \x1b[0ma [1] b"
    assert coloured_rank(b"a [1] b") == b"a [1] b"
    assert os.linesep not in coloured_rank(b"[12] x").decode()
