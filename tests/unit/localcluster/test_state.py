"""The directories, the recorded processes and the progress of the embedded cluster."""

import os
from pathlib import Path

import pytest
from elasticjob_localcluster import daemons, state_directory
from elasticjob_localcluster.progress_display import ProgressDisplay
from elasticjob_processes.table import read_process
from rich.console import Console


def test_directories_follow_the_environment_and_an_empty_home_is_looked_up() -> None:
    assert state_directory.cache_dir({"ELASTICJOB_CACHE": "/c"}) == Path("/c")
    assert state_directory.cache_dir({"XDG_CACHE_HOME": "/x", "HOME": "/h"}) == Path(
        "/x/elasticjob"
    )
    assert state_directory.cache_dir({"HOME": "/h"}) == Path("/h/.cache/elasticjob")
    assert state_directory.state_dir({"ELASTICJOB_STATE": "/s"}) == Path("/s")
    assert state_directory.state_dir({"XDG_STATE_HOME": "/x", "HOME": "/h"}) == Path(
        "/x/elasticjob/dev"
    )
    assert state_directory.state_dir({"HOME": "/h"}) == Path("/h/.local/state/elasticjob/dev")
    assert state_directory.home({"HOME": ""}).is_absolute()


def test_a_process_is_not_mistaken_for_another_one_with_its_id(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    own = read_process(os.getpid())
    assert own is not None
    (tmp_path / "pids" / "me").write_text(f"{os.getpid()} {own.started}\n")
    (tmp_path / "pids" / "stale").write_text(f"{os.getpid()} 1\n")
    (tmp_path / "pids" / "cut-off").write_text("")
    found = daemons.recorded(tmp_path)
    assert {name: process.alive() for name, process in found.items()} == {
        "me": True,
        "stale": False,
    }


def test_without_a_terminal_progress_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    progress = ProgressDisplay(Console(stderr=True, force_terminal=False))
    with progress.step("building etcd [1 of 5]") as tick:
        tick()
    assert capsys.readouterr().err == "building etcd [1 of 5]\n"
