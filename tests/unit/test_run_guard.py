"""Ends runs of pytest by a signal, and looks at what they leave."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from elasticjob_localcluster import daemons
from elasticjob_processes.table import read_process

from tests.support.wait import wait_until

REPOSITORY = Path(__file__).parents[2]
TEST = """
import os, time
from pathlib import Path
from elasticjob_localcluster import daemons

def test_waits():
    folder = Path(__file__).parent
    daemons.start("etcd", ["sleep", "600"], state=folder, environ=os.environ)
    (folder / "new").write_text(str(os.getpid()))
    (folder / "new").rename(folder / "pid")
    time.sleep(600)
"""


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGTERM, 0), (signal.SIGKILL, 1)])
def test_a_run_that_a_signal_ends_leaves_none_of_its_processes(
    tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    for name in ("pids", "logs"):
        (tmp_path / name).mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_waits.py").write_text(TEST)
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", f"--workers={workers}", "-p", "tests.conftest"),
            *("-p", "no:cacheprovider", str(tmp_path)),
        ],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
    ) as run:
        wait_until("its test runs", (tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        entry = read_process(pid)
        assert entry is not None
        test = daemons.ProcessIdentity(pid, entry.started)
        assert daemons.find_processes(tmp_path)
        run.send_signal(number)
    try:
        wait_until("its test has ended", lambda: not test.alive())
        wait_until("no process is left", lambda: not daemons.find_processes(tmp_path))
    finally:
        test.send(signal.SIGKILL)
        daemons.stop(daemons.find_processes(tmp_path), seconds=1)
