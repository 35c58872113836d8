"""Real trackers get the metrics of runs whose world changes and whose processes are killed."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.framework_python import installed_by
from tests.support.local_run import TRAINING as COUNTING
from tests.support.local_run import LocalRun, local_run
from tests.support.wait import wait_until

AGENT = "elasticjob_agent.main"
READER = Path(__file__).parents[1] / "support" / "tracker_stores.py"
TRAINING = COUNTING.replace(
    "checkpointer.step(step, save)",
    "checkpointer.step(step, save, due=False, metrics=dict(loss=1 / step, round=world.round))",
)
"""A program that saves its steps only when the world changes."""

Values = dict[str, list[tuple[int, float]]]


class Tracked:
    """A run with a tracker."""

    def __init__(self, run: LocalRun, tracker: str) -> None:
        self.run = run
        self.tracker = tracker
        self.python = installed_by("trackers_env")
        folder = run.folder
        run.environment |= {
            "ELASTICJOB_TRACKER": tracker,
            "ELASTICJOB_TRACKER_FOLDER": str(folder / "tensorboard"),
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
            "MLFLOW_EXPERIMENT_NAME": "elastic",
            "WANDB_MODE": "offline",
            "WANDB_DIR": str(folder),
        }

    def read(self) -> dict[str, Values]:
        """Return the values of the store, by run and metric."""
        ran = subprocess.run(
            [self.python, READER, self.tracker],
            env=self.run.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        found: dict[str, Values] = json.loads(ran.stdout)
        return {run: defaultdict(list, values) for run, values in found.items()}

    def newest(self) -> int:
        """Return the newest step of the store."""
        return max((s for values in self.read().values() for s, _ in values["loss"]), default=0)

    def wait_for_step(self, step: int) -> None:
        """Wait until the newest step of the store is this one or a later one."""
        wait_until(
            f"step {step} in {self.tracker}",
            self.newest,
            lambda newest: newest >= step,
            seconds=60,
            explain=self.run.log,
        )

    def train_through_changes(self) -> int:
        """Scale 2 → 3 → 2, kill rank 0 after unsaved steps, end; return the last step."""
        run = self.run
        assert not self.read(), "the database has its tables before two processes use it"
        process = run.start("-n", "2", "--workers", "1:3", "--", self.python, run.program(TRAINING))
        run.wait_for_line(r"\[1\] round 1 size 2 from step 0")
        for size in (3, 2):
            code, said = run.call("scale", "training", str(size), "--wait", "--timeout=60")
            assert code == 0, said + run.log()
        saved = run.numbers(r"\[0\] stopped after step (\d+)")[-1]
        self.wait_for_step(saved + 10)
        begun = len(run.numbers(r"round \d+ size (2) "))
        run.part(process, AGENT)[0].kill()
        wait_until(
            "a world of 2 again",
            lambda: len(run.numbers(r"round \d+ size (2) ")) >= begun + 2,
            explain=run.log,
        )
        self.wait_for_step(self.newest() + 1)  # beyond those that the killed process has written
        run.end.touch()
        assert run.wait_for_end(process) == 0, run.log()
        run.wait_until_nothing_is_left()
        [last] = run.numbers(r"\[0\] finished with step (\d+)")
        return last


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LocalRun]:
    with local_run(tmp_path) as found:
        yield found


@pytest.mark.parametrize("tracker", ["mlflow", "tensorboard"])
@pytest.mark.guarantee("trackers")
def test_a_run_in_the_tracker_has_each_step_once_whatever_the_world_does(
    run: LocalRun, tracker: str
) -> None:
    tracked = Tracked(run, tracker)
    last = tracked.train_through_changes()
    [values] = tracked.read().values()
    for name in ("loss", "round", "elasticjob/world_size"):
        assert sorted(step for step, _ in values[name]) == [*range(1, last + 1)], (name, run.log())
    assert {2.0, 3.0} <= {size for _, size in values["elasticjob/world_size"]}
    assert all(value == pytest.approx(1 / step) for step, value in values["loss"])


@pytest.mark.guarantee("trackers")
def test_weights_and_biases_has_one_run_with_all_steps(run: LocalRun) -> None:
    tracked = Tracked(run, "wandb")
    last = tracked.train_through_changes()
    parts = tracked.read()
    assert len({name.partition(" ")[0] for name in parts}) == 1, "one id"
    steps = [[step for step, _ in values["loss"]] for values in parts.values() if values]
    assert all(part == sorted(set(part)) for part in steps), "each world: each step once, in order"
    assert {step for part in steps for step in part} == {*range(1, last + 1)}, run.log()
