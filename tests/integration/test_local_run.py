"""Runs `elasticjob run` as a user does: a real master and real agents on this machine."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob_cli.common.local_runs import SOCKET

from tests.support.local_run import SECONDS, TRAINING, LocalRun, local_run, size_and_step
from tests.support.programs import ran
from tests.support.thorough import some_of
from tests.support.wait import wait_until

MASTER = "elasticjob_master.main"
AGENT = "elasticjob_agent.main"
DEAF = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
print("deaf")
time.sleep(3600)
"""

BAR = """
import os, sys, time
from pathlib import Path
for state in ("10%", "20%"):
    sys.stderr.write(f"\\r{state}")
    sys.stderr.flush()
    time.sleep(0.1)
while not Path(os.environ["END"]).exists():
    time.sleep(0.02)
sys.stderr.write("\\r100%\\n")
"""
QUESTION = """
name = input("name? ")
print("hello", name)
breakpoint()
print("after")
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LocalRun]:
    with local_run(tmp_path) as found:
        yield found


@pytest.mark.guarantee("local-run")
@pytest.mark.thorough
def test_a_run_resizes_from_two_to_three_to_one_without_losing_a_step(
    run: LocalRun,
) -> None:
    process = run.start("-n", "2", "--workers", "1:3", run.program(TRAINING))
    run.wait_for_line(r"\[1\] round 1 size 2 from step 0")
    assert run.call("scale", "training", "4")[0] == 1
    code, said = run.call("scale", "training", "+1", "--wait", "--timeout=60")
    three = "run training trains with 3 workers\n"
    where = "run training on this machine (-n NAMESPACE: in a cluster)\n"
    assert (code, said) == (0, where + three), run.log()
    again = run.call("scale", "local/training", "3", "--wait", "--timeout=0")
    assert again == (0, three), run.log()
    assert "training  3/3 " in run.call("list", "--local")[1]
    assert "[1] round 1 size 2 from step 0\n" in run.call("logs", "training", "--rank=1")[1]
    assert "training-worker-2" in run.call("query", "training", "members")[1]
    assert "rank" in run.call("stacks", "training", "--rank=2")[1]
    assert run.call("scale", "local/training", "1", "--wait", "--timeout=0")[0] == 4
    back = run.call("scale", "local/training", "1", "--wait", "--timeout=60")
    assert back == (0, "run training trains with 1 worker\n"), run.log()
    run.finish(process)
    begun = size_and_step(run.log())
    assert [size for size, _ in begun] == [2, 3, 1], run.log()
    assert [step for _, step in begun][1:] == run.numbers(r"\[0\] stopped after step (\d+)"), (
        run.log()
    )
    run.wait_until_nothing_is_left()


@pytest.mark.guarantee("local-run")
def test_killed_workers_and_masters_are_replaced_and_the_training_succeeds(
    run: LocalRun,
) -> None:
    process = run.start("-n", "2", "--framework", "pytorch", run.program(TRAINING))
    run.wait_for_line(r"round \d+ size 2 ")
    run.part(process, MASTER)[0].kill()
    run.wait_for_line(r"the master has failed \(ended by SIGKILL\) and is restarted")
    begun = len(run.numbers(r"round \d+ size (2) "))
    run.part(process, AGENT)[0].kill()
    run.wait_for_line(r"worker \d has failed \(ended by SIGKILL\) and is restarted")
    wait_until(
        "a world of 2 again",
        lambda: len(run.numbers(r"round \d+ size (2) ")) >= begun + 2,
        explain=run.log,
    )
    run.finish(process)


@pytest.mark.guarantee("local-run")
def test_a_program_finds_the_library_in_any_python(run: LocalRun) -> None:
    other = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    missing = ran(other, "-c", "import elasticjob")
    assert "No module named 'elasticjob'" in missing.stderr, "this interpreter has it anyway"
    process = run.start("-n", "2", "--", str(other), run.program(TRAINING))
    run.wait_for_line(r"\[1\] round 1 size 2 from step 0")
    run.finish(process)


@pytest.mark.guarantee("local-run")
def test_ctrl_c_lets_the_workers_save_and_leaves_nothing(run: LocalRun) -> None:
    process = run.start("-n", "2", run.program(TRAINING))
    run.wait_for_line(r"\[1\] round 1 size 2")
    assert run.call("query", "training", "--namespace=any")[0] == 1, (
        "a cluster is meant, and there is none"
    )
    process.send_signal(signal.SIGINT)
    assert run.wait_for_end(process) == 130, run.log()
    assert run.left() == []
    saved = [int(path.read_text()) for path in Path(run.environment["CHECKPOINTS"]).rglob("step")]
    assert saved == run.numbers(r"\[0\] stopped after step (\d+)"), run.log()


@pytest.mark.guarantee("local-run")
@pytest.mark.thorough
def test_a_second_ctrl_c_kills_the_remaining_processes(run: LocalRun) -> None:
    process = run.start("-n", "2", run.program(DEAF))
    run.wait_for_line(r"\[1\] deaf")
    process.send_signal(signal.SIGINT)
    run.wait_for_line("a second Ctrl-C kills them")
    process.send_signal(signal.SIGINT)
    assert run.wait_for_end(process) == 130, run.log()
    assert run.left() == []


@pytest.mark.guarantee("local-run")
def test_nothing_is_left_when_the_command_is_killed(run: LocalRun) -> None:
    process = run.start("-n", "2", run.program(DEAF))
    run.wait_for_line(r"\[1\] deaf")
    process.kill()
    process.wait()
    run.wait_until_nothing_is_left()


@pytest.mark.guarantee("local-run")
def test_a_run_ends_with_the_reason_and_the_last_output_of_a_repeatedly_crashing_process(
    run: LocalRun,
) -> None:
    text = """
import atexit, sys
atexit.register(lambda: [print(f"closing {n}", file=sys.stderr) for n in range(30)])
raise ValueError("no such data set")
"""
    process = run.start("-n", "1", "--restart-limit", "1", run.program(text, "crash.py"))
    assert run.wait_for_end(process) == 1, run.log()
    said = run.log().partition("elasticjob: worker 0 (rank 0) has failed: exit code 1\n")[2]
    first, *_, last = said.splitlines()
    assert first == "elasticjob:   [0] ValueError: no such data set"
    assert last == "elasticjob:   [0] closing 29"
    assert run.log().count("and is restarted") == 1
    assert run.left() == []


@pytest.mark.guarantee("failure-ends-the-job")
def test_a_crash_that_ends_the_run_does_not_start_the_others_again(run: LocalRun) -> None:
    program = """
import os, time
print(f"began {os.environ['ELASTICJOB_ROUND']}")
time.sleep(1)
if os.environ["ELASTICJOB_RANK"] == "1":
    raise SystemExit("no such data set")
time.sleep(3600)
"""
    process = run.start("-n", "3", run.program(program, "crash.py"))
    assert run.wait_for_end(process) == 1, run.log()
    assert run.numbers(r"began (\d+)") == [1, 1, 1], run.log()


def test_a_command_that_cannot_run_is_an_error_at_once(run: LocalRun) -> None:
    assert run.wait_for_end(run.start("-n", "2", "--", run.program("", "not-executable"))) == 1
    assert "cannot run '" in run.log()
    assert "started again" not in run.log()


@pytest.mark.guarantee("local-run")
@pytest.mark.thorough
def test_simultaneous_runs_of_one_script_have_different_names_and_end_separately(
    run: LocalRun,
) -> None:
    script = run.program(TRAINING)
    first = run.start("-n", "1", script)
    second = run.start("-n", "1", script)
    wait_until("both train", lambda: len(run.numbers(r"round (\d+) size 1")) == 2, explain=run.log)
    assert run.call("stop", "training-2", "--wait")[0] == 0, run.log()
    wait_until(
        "one has ended", lambda: {first.poll(), second.poll()}, lambda codes: codes == {None, 1}
    )
    assert run.wait_for_end(run.start("--name", "training", script)) == 1
    assert "there is a run training already" in run.log()
    run.end.touch()
    assert {run.wait_for_end(first), run.wait_for_end(second)} == {0, 1}, run.log()


@pytest.mark.guarantee("local-run")
def test_a_progress_bar_is_shown_while_it_moves(run: LocalRun) -> None:
    process = run.start("-n", "2", run.program(BAR))
    run.wait_for_line(r"\[0\] 10%")
    run.wait_for_line(r"\[1\] 10%")
    run.finish(process)
    assert "[0] 100%\n" in run.log()


@pytest.mark.guarantee("local-run")
def test_one_worker_asks_questions_and_stops_in_a_debugger_on_a_terminal(run: LocalRun) -> None:
    controller, terminal = os.openpty()
    process = run.start_on_terminal(terminal, run.program(QUESTION))
    os.close(terminal)
    with os.fdopen(controller, "r+b", 0) as user:
        shown = ""

        def until(text: str) -> None:
            nonlocal shown
            while text not in shown:
                readable, _, _ = select.select([user], [], [], SECONDS)
                assert readable, f"no {text!r} in {shown!r}"
                shown += os.read(user.fileno(), 1024).decode()

        until("name? ")
        user.write(b"Ada\n")
        until("hello Ada")
        until("(Pdb) ")
        user.write(b"c\n")
        until("after")
        assert run.wait_for_end(process) == 0


@pytest.mark.guarantee("local-run")
@pytest.mark.parametrize(
    ("size", "read"), some_of([pytest.param("1", "data"), pytest.param("2", "")], first=1)
)
def test_only_a_run_that_begins_with_one_worker_reads_the_input(
    run: LocalRun, size: str, read: str
) -> None:
    program = run.program("import sys; print(f'read {sys.stdin.read().strip()!r}')")
    process = run.start("-n", size, program, text=b"data\n")
    assert run.wait_for_end(process) == 0, run.log()
    assert f"[0] read {read!r}\n" in run.log()


@pytest.mark.guarantee("local-run")
def test_a_run_is_shown_by_the_commands_for_jobs(run: LocalRun) -> None:
    process = run.start("-n", "2", run.program(TRAINING))
    run.wait_for_line(r"\[1\] round 1 size 2 from step 0")
    code, said = run.call("wait", "training", "--for=step=3", "--timeout=60")
    assert (code, "run training is Running, step " in said) == (0, True), said
    assert run.call("wait", "training", "--for=step=1000000", "--timeout=0")[0] == 4
    assert run.call("wait", "training", "--for=suspended")[0] == 2
    code, said = run.call("logs", "training", "--rank=1", "--tail=1")
    assert (code, "\n[1] " in said, "[0] " in said) == (0, True, False), said
    code, said = run.call("describe", "local/training")
    assert (code, "training-worker-1" in said) == (0, True), said
    code, said = run.call("top", "training")
    assert (code, "world of 2" in said) == (0, True), said
    code, said = run.call("describe", "trainin")
    assert (code, "did you mean local/training, a run on this machine?" in said) == (1, True), said
    with run.started("logs", "-f", "training") as log, run.started("wait", "training") as waiting:
        with run.started("dashboard", "training", "--no-browser") as page:
            assert page.stdout is not None
            (url,) = re.findall(r"http://[0-9.:]+/", page.stdout.readline().decode())
            with urllib.request.urlopen(f"{url}status", timeout=SECONDS) as answer:
                assert json.load(answer)["worldSize"] == 2
            page.terminate()
        assert log.stdout is not None
        log.stdout.readline()
        control = str(run.runs / "training" / SOCKET)
        wait_until(
            "the connection of the command that waits",
            lambda: Path("/proc/net/unix").read_text().count(control) > 1,
            seconds=SECONDS,
        )
        run.finish(process)
        assert waiting.communicate(timeout=SECONDS)[0] == b"run training is Succeeded\n"
        assert b"finished with step" in log.communicate(timeout=SECONDS)[0]
    assert (waiting.returncode, log.returncode) == (0, 0)
