"""Runs data sets with real agents, masters and training processes, and kills all of them."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc.aio
import psutil
import pytest
from elasticjob_api import names
from elasticjob_api.v1 import shards_pb2 as pb
from elasticjob_api.v1.shards_pb2_grpc import ShardServiceStub

from tests.support.local_job import LocalJob
from tests.support.master_process import Master, run_master
from tests.support.wait import until

pytestmark = pytest.mark.thorough

SCRIPT = str(Path(__file__).parents[1] / "support" / "shard_training.py")
SECONDS = 60


class Workers:
    """Agents on this machine; each runs the training script."""

    def __init__(self, job: LocalJob, mode: str) -> None:
        self.job = job
        self.folder = job.folder
        self.mode = mode
        self.trained = self.folder / "trained"
        self.files = self.folder / "files"
        self.trained.mkdir()
        self.files.mkdir()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, index: int, **more: str) -> None:
        environment = {
            "FILES": str(self.files),
            "TRAINED": str(self.trained),
            "MODE": self.mode,
            names.ENV_TERMINATION_LOG: str(self.folder / f"termination-{index}"),
            names.ENV_DRAIN_SECONDS: "5",
            **more,
        }
        self.processes[index] = self.job.start_agent(index, sys.executable, SCRIPT, **environment)

    def kill(self, index: int) -> None:
        """Kill a pod's processes all at once, as a lost node would."""
        agent = self.processes[index]
        with contextlib.suppress(psutil.NoSuchProcess):
            inside = psutil.Process(agent.pid).children(recursive=True)
            agent.kill()
            for process in inside:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        agent.wait()

    def noted(self) -> list[tuple[str, int]]:
        """Return the (kind, shard) lines that the processes have written."""
        lines = [
            line.split()
            for path in self.trained.iterdir()
            for line in path.read_text().splitlines()
        ]
        return [(what, int(shard)) for what, shard in lines]

    def log(self) -> str:
        return self.job.log()

    async def until(self, what: str, condition: Callable[[], object]) -> None:
        await until(what, condition, seconds=SECONDS, explain=self.log)

    async def until_trained(self, shards: int) -> None:
        await self.until(
            f"more than {shards} shards are trained", lambda: len(self.noted()) > shards
        )

    async def finished(self) -> None:
        await self.until(
            "all workers end", lambda: all(p.poll() is not None for p in self.processes.values())
        )
        assert {p.returncode for p in self.processes.values()} == {0}, self.log()

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for index, process in self.processes.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            self.kill(index)


@pytest.fixture
async def workers(local_job: LocalJob, request: pytest.FixtureRequest) -> AsyncIterator[Workers]:
    local_job.framework = "custom"
    running = Workers(local_job, request.param)
    yield running
    running.end()


def master(
    workers: Workers, number: int, *more: str
) -> contextlib.AbstractAsyncContextManager[Master]:
    """Run a master that continues from its predecessor's state."""
    options = (
        "--standalone",
        "--min=1",
        f"--workers={number}",
        f"--state-file={workers.folder / 'state'}",
        *more,
    )
    return run_master(
        workers.folder, *options, ports=(names.GRPC_PORT, 0), address=workers.job.host
    )


async def ledger(channel: grpc.aio.Channel, dataset: str) -> pb.Ledger:
    answer: pb.Ledger = await ShardServiceStub(channel).GetLedger(
        pb.GetLedgerRequest(dataset=dataset), timeout=10
    )
    return answer


def shards_in_checkpoint(path: Path) -> int:
    """Return the number of shards that a checkpoint contains."""
    return len(path.read_bytes().split(b"\n", 1)[0].split()) if path.exists() else 0


@pytest.mark.guarantee("master-can-be-replaced", "leases-of-a-killed-worker", "damaged-samples")
@pytest.mark.parametrize("workers", ["train"], indirect=True)
async def test_every_shard_ends_done_or_failed_when_workers_and_masters_are_killed(
    workers: Workers,
) -> None:
    for number in range(5):
        path = workers.files / f"{number}.txt"
        path.write_text(f"line of {path}\n" * (100 * number + 3))
    (workers.files / "damaged.txt").write_bytes(b"\xff\xfe\n" * 12)
    total = 2 * (1 + 21 + 41 + 61 + 81 + 3)
    failing = 2 * 3
    rng = random.Random(5)
    for index in range(3):
        workers.start(index)
    for kills in range(3):
        async with master(workers, 3) as running:
            enough = total * (kills + 1) // 5
            await workers.until_trained(enough)
            victim = rng.randrange(3)
            workers.kill(victim)
            workers.start(victim)
            await workers.until_trained(enough + 30)
            await running.kill()
    async with master(workers, 3) as running, running.channel() as channel:
        await workers.finished()
        account = await ledger(channel, "text")
    trained = Counter(workers.noted())
    assert (account.total, account.done, account.failed) == (total, total - failing, failing)
    assert (account.leased, account.waiting) == (0, 0)
    assert {shard for _, shard in trained} == set(range(total)), "no shard is lost"
    assert {what for what, _ in trained} == {"trained", "failed"}
    assert len({shard for what, shard in trained if what == "failed"}) == failing
    assert re.search(
        r"data set text: \d+ shards failed \(.*\): .*can't decode byte 0xff", workers.log()
    )


@pytest.mark.guarantee("leases-survive-the-master")
@pytest.mark.parametrize("workers", ["train"], indirect=True)
async def test_a_lease_that_a_killed_master_did_not_store_is_not_given_out_again(
    workers: Workers,
) -> None:
    (workers.files / "lines.txt").write_text(f"line of {workers.files / 'lines.txt'}\n" * 5000)
    store = workers.folder / "store"
    away = workers.folder / "away"
    store.mkdir()
    for index in range(3):
        workers.start(index)
    async with master(workers, 3, f"--state-file={store / 'state'}") as running:
        await workers.until("a few shards are trained", lambda: len(workers.noted()) > 50)
        store.rename(away)
        before = len(workers.noted())
        await workers.until(
            "training continues without a store", lambda: len(workers.noted()) > before + 300
        )
        await running.kill()
    away.rename(store)
    async with master(workers, 3, f"--state-file={store / 'state'}"):
        await workers.finished()
    trained = Counter(shard for _, shard in workers.noted())
    assert set(trained) == set(range(2000)), "no shard is lost"
    assert set(trained.values()) == {1}, [shard for shard, times in trained.items() if times > 1]


@pytest.mark.guarantee("leases-of-a-killed-worker")
@pytest.mark.parametrize("workers", ["resume"], indirect=True)
async def test_a_model_restored_from_its_checkpoint_trains_every_shard_once(
    workers: Workers,
) -> None:
    model = workers.folder / "model"
    async with master(workers, 1) as running, running.channel() as channel:
        workers.start(0)
        for kills in range(3):
            enough = 30 + 40 * kills
            await workers.until(
                f"{enough} shards are in the model",
                lambda: shards_in_checkpoint(model) >= enough,  # noqa: B023
            )
            workers.kill(0)
            workers.start(0)
        await workers.finished()
        assert "model of 200 shards, 200 different ones" in workers.log()
        account = await ledger(channel, "data")
        assert (account.total, account.done) == (200, 200)


@pytest.mark.parametrize("workers", ["fork"], indirect=True)
async def test_shards_leased_by_a_forked_process_return_when_it_ends(workers: Workers) -> None:
    async with master(workers, 1):
        workers.start(0)
        await workers.finished()
    log = workers.log()
    assert "child has [0, 1, 2]" in log
    assert f"parent has {list(range(20))}" in log
    assert re.search(
        r"data set data was opened by process \d+ and is used in process \d+, forked from it", log
    )


@pytest.mark.parametrize("workers", ["stream"], indirect=True)
async def test_a_stream_is_trained_while_it_grows_and_ends_for_all(workers: Workers) -> None:
    async with master(workers, 2) as running, running.channel() as channel:
        workers.start(0)
        workers.start(1)
        await workers.finished()
        account = await ledger(channel, "events")
    assert (account.total, account.done, account.growing) == (11, 11, False)
    assert sorted(shard for _, shard in workers.noted()) == list(range(11))
    assert ("40-42", 10) in workers.noted()


@pytest.mark.parametrize("workers", ["again"], indirect=True)
async def test_a_process_restarted_in_place_restores_its_checkpoint(
    workers: Workers,
) -> None:
    async with master(workers, 1) as running, running.channel() as channel:
        workers.start(0, **{names.ENV_PROCESS_RESTART_LIMIT: "1"})
        await workers.finished()
        assert f"the rest is {list(range(5, 20))}" in workers.log()
        account = await ledger(channel, "data")
        assert (account.total, account.done) == (20, 20)


@pytest.mark.guarantee("process-retried-in-its-pod")
@pytest.mark.parametrize("workers", ["meet"], indirect=True)
async def test_a_crashed_process_rejoins_the_other_in_a_new_world(
    workers: Workers,
) -> None:
    async with master(workers, 2):
        for index in range(2):
            workers.start(index, **{names.ENV_PROCESS_RESTART_LIMIT: "1"})
        await workers.finished()
    met = set(re.findall(r"rank (.*) round (.*) found (.*)", workers.log()))
    rounds = {round_ for _, round_, _ in met}
    assert met == {(rank, round_, "None") for rank in "01" for round_ in rounds}
    assert len(rounds) == 2


@pytest.mark.guarantee("member-cut-off")
@pytest.mark.parametrize("workers", ["commit"], indirect=True)
async def test_a_process_saves_nothing_once_the_others_train_without_it(
    workers: Workers,
) -> None:
    async with master(workers, 2, "--lost-seconds=5"):
        workers.start(0)
        workers.start(1)
        await workers.until("rank 0 is about to save", lambda: ("waits", 5) in workers.noted())
        frozen = next(one for one in workers.processes.values() if is_parent_of_rank_0(one.pid))
        frozen.send_signal(signal.SIGSTOP)
        try:
            await workers.until(
                "the other trains all the rest", lambda: "trained as one of 1" in workers.log()
            )
            (workers.folder / "others-are-ahead").touch()
            await workers.until(
                "it saves, and waits for its agent", lambda: "saves" in workers.log()
            )
        finally:
            frozen.send_signal(signal.SIGCONT)
        await workers.until(
            "it is restarted", lambda: workers.log().count("trained as one of 2") > 1
        )
        (workers.folder / "over").touch()
        await workers.finished()
    assert not (workers.folder / "account").exists(), "the account of the others' model"
    assert not (workers.folder / "model").exists()
    assert workers.log().count("may commit: True") == 3, "one alone, and then both"


def is_parent_of_rank_0(agent: int) -> bool:
    """Return whether the training process of an agent is rank 0."""
    return any(
        child.environ().get(names.ENV_RANK) == "0" for child in psutil.Process(agent).children()
    )
