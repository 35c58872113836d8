"""Which exit code and lines are those of the program, and not of the launcher that started it."""

from __future__ import annotations

import pytest
from elasticjob_agent.training_process import of_program

ERROR = """\
Traceback (most recent call last):
  File "/app/train.py", line 8, in <module>
    raise ValueError("the loss is not a number")
ValueError: the loss is not a number"""
TORCHRUN = """\
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/usr/lib/python3/dist-packages/torch/distributed/launcher/api.py", line 246, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 0)
  exitcode  : {code} (pid: 4094)
============================================================"""
REPORTS = {
    "1.13": "ERROR:torch.distributed.elastic.multiprocessing.api:"
    "failed (exitcode: {code}) local_rank: 0 (pid: 4094) of binary: /usr/bin/python3",
    "2.5": "E1124 06:39:16.123000 4090 torch/distributed/elastic/multiprocessing/api.py:869] "
    "failed (exitcode: {code}) local_rank: 0 (pid: 4094) of binary: /usr/bin/python3",
}
ENDS_OTHERS = (
    "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 7 closing signal SIGTERM"
)
ORPHAN = """\
Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 122, in spawn_main
    exitcode = _main(fd, parent_sentinel)
               ^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/multiprocessing/synchronize.py", line 115, in __setstate__
    self._semlock = _multiprocessing.SemLock._rebuild(*state)
FileNotFoundError: [Errno 2] No such file or directory"""


@pytest.mark.guarantee("failure-below-a-launcher")
@pytest.mark.parametrize("version", REPORTS)
@pytest.mark.parametrize(("theirs", "code"), [(1, 1), (42, 42), (-9, 137), (-11, 139)])
def test_below_torchrun_code_and_lines_are_those_of_the_process_that_failed_first(
    version: str, theirs: int, code: int
) -> None:
    output = [
        *ERROR.splitlines(),
        ENDS_OTHERS,
        REPORTS[version].format(code=theirs),
        *TORCHRUN.format(code=theirs).splitlines(),
    ]
    assert of_program(1, output) == (code, ERROR.splitlines())


def test_of_several_failures_below_torchrun_the_last_one_counts() -> None:
    first = REPORTS["1.13"].format(code=3)
    last = REPORTS["1.13"].format(code=4)
    code, lines = of_program(1, [first, "again", last, "ChildFailedError:"])
    assert (code, lines[-1]) == (4, "again")


def test_lines_of_torchrun_alone_are_kept_and_end_with_its_report() -> None:
    report = REPORTS["1.13"].format(code=5)
    summary = TORCHRUN.format(code=5).splitlines()
    assert of_program(1, [report, *summary]) == (5, [*summary, report])


@pytest.mark.parametrize("code", [0, 2, 137, 143])
def test_a_torchrun_that_has_ended_otherwise_keeps_its_code_and_lines(code: int) -> None:
    output = [*ERROR.splitlines(), REPORTS["1.13"].format(code=3), "and so on"]
    assert of_program(code, output) == (code, output)


@pytest.mark.guarantee("failure-below-a-launcher")
def test_processes_whose_parent_failed_during_their_start_do_not_hide_its_error() -> None:
    error = [*ERROR.splitlines()[:-1], "TimeoutException: Timed out waiting for tasks to start."]
    output = [*error, *ORPHAN.splitlines(), *ORPHAN.splitlines()]
    assert of_program(1, output) == (1, error)


@pytest.mark.parametrize(
    "output",
    [
        ORPHAN,
        ERROR,
        f"{ERROR}\n{ORPHAN}: 'data.csv'",
        f"{ERROR}\n{ORPHAN}".replace("<string>", "train.py"),
        f"{ERROR}\nTraceback (most recent call last):",
        "epoch 3",
        "",
    ],
)
def test_all_other_lines_are_kept(output: str) -> None:
    assert of_program(1, output.splitlines()) == (1, output.splitlines())
