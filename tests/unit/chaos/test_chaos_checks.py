"""Tests that the checks of a chaos run find lost and repeated samples, and wrong sizes."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from elasticjob.checkpoint_storage import COMPLETE, Folder
from elasticjob_api.meta import Json

from tests.support.chaos.checks import errors_in_log, wrong
from tests.support.chaos.cluster import HERE
from tests.support.chaos.faults import limit_files
from tests.support.chaos.jobs import SentRequest
from tests.support.chaos.pod_watch import WatchedPod
from tests.support.chaos.record import Record
from tests.support.chaos.samples import account_of
from tests.support.chaos.schedule import Request
from tests.support.chaos.training import END

SAMPLES = 12
"""The samples of a job with three shards."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    (tmp_path / "volume").mkdir()
    return tmp_path


def log(
    folder: Path, name: str, *lines: Json, at: float = 1.0, round_: int = 1, rank: int = 0
) -> None:
    """Write the log of one process, with lines a second apart."""
    begin = {"pod": name, "round": round_, "rank": rank, "size": 1, "pid": 1}
    written = [{"at": at + number, **line} for number, line in enumerate([begin, *lines])]
    (folder / "log" / f"{name}.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in written)
    )


def trained(*shards: int) -> list[Json]:
    return [{what: shard} for shard in shards for what in ("trained", "committed")]


def checkpoint(folder: Path, *model: list[int], end: bool = True, name: str = "1-1") -> None:
    storage = Folder(folder / "volume")
    storage.begin(f"checkpoint-{name}")
    storage.write(f"checkpoint-{name}", "model", json.dumps({"model": model, "end": end}).encode())
    storage.write(f"checkpoint-{name}", COMPLETE, b"")


def test_a_job_with_every_shard_committed_passes(folder: Path) -> None:
    log(folder, "a", *trained(0, 1))
    log(folder, "b", *trained(1, 2), rank=1)
    account = account_of("independent", folder, SAMPLES)
    assert (account.samples, account.again, account.findings) == (12, 1, [])


@pytest.mark.guarantee("random-faults")
def test_an_uncommitted_shard_is_found_as_lost(folder: Path) -> None:
    log(folder, "a", *trained(0, 1), {"trained": 2})
    assert account_of("independent", folder, SAMPLES).findings == [
        "1 of 3 shards lost, not committed: [2]"
    ]


def test_a_shard_that_is_leased_again_after_it_was_stored_is_found(folder: Path) -> None:
    log(folder, "a", *trained(0, 1), {"stored": [0, 1]})
    log(folder, "b", *trained(0, 2), at=100, round_=2)
    [finding] = account_of("independent", folder, SAMPLES).findings
    assert finding == "b has leased shards that were stored before it began: [0]"


def test_a_process_that_began_before_a_shard_was_stored_may_train_it(folder: Path) -> None:
    log(folder, "a", *trained(0, 1), {"stored": [0, 1]}, at=50)
    log(folder, "b", *trained(0, 2), at=1, round_=2)
    assert account_of("independent", folder, SAMPLES).findings == []


@pytest.mark.guarantee("random-faults")
def test_a_model_must_contain_each_trained_shard_once(folder: Path) -> None:
    log(folder, "a", *trained(0, 1, 2))
    checkpoint(folder, [0, 1, 0], [1, 1, 0], [2, 1, 0])
    assert account_of("synchronous", folder, SAMPLES).findings == []
    checkpoint(folder, [0, 1, 0], [1, 1, 0], [1, 1, 0], [7, 1, 0], end=False, name="2-1")
    assert account_of("synchronous", folder, SAMPLES).findings == [
        "the newest checkpoint is not that of the end",
        "1 of 3 shards lost, not in the model: [2]",
        "1 shards twice in the model: [1]",
        "shards that are none: [7]",
        "in the model, but not trained: [(7, 1, 0)]",
    ]


def test_a_model_in_memory_must_be_written_at_the_end(folder: Path) -> None:
    log(folder, "a", *trained(0, 1, 2))
    assert "the newest checkpoint is not that of the end" in findings("continuing", folder)
    (folder / "volume" / END).write_text(json.dumps([[0, 1, 0], [1, 1, 0]]))
    assert findings("continuing", folder) == ["1 of 3 shards lost, not in the model: [2]"]


def findings(program: str, folder: Path) -> list[str]:
    return account_of(program, folder, SAMPLES).findings


def test_two_processes_of_one_rank_in_one_round_are_found(folder: Path) -> None:
    log(folder, "a", *trained(0, 1, 2))
    log(folder, "b")
    assert account_of("independent", folder, SAMPLES).findings == [
        "round 1 had 2 processes of rank 0"
    ]


def sent(kind: str) -> SentRequest:
    return SentRequest(Request(kind, 1, 2), at=0.0)


def plan(before: str, targets: str, phase: str = "Succeeded", **more: str) -> Json:
    status = {"phase": phase, "before": {"worker": before}, "targets": {"worker": targets}, **more}
    return {"kind": "ScalePlan", "metadata": {"name": "p"}, "status": status}


def test_a_plan_without_its_requested_effect_is_found() -> None:
    assert wrong(plan("0-1", "0-3"), sent("out")) == []
    assert wrong(plan("0-3", "0,2"), sent("in")) == []
    assert wrong(plan("0-3", "0-3"), sent("resources")) == []
    [found] = wrong(plan("0-1", "0-2"), sent("out"))
    assert "changed 2 to 3 workers, not to 4" in found
    assert wrong(plan("", "", "Failed"), None) == ["ScalePlan p is Failed and does not say why"]
    assert wrong(plan("", "", "Failed", message="no room"), None) == []


def test_two_pods_of_one_member_are_found_with_any_labels() -> None:
    assert pod("a").member == pod("b").member != pod("c", index="1").member


def pod(name: str, index: str = "0") -> WatchedPod:
    env = [
        {"name": "ELASTICJOB_JOB_UID", "value": "u"},
        {"name": "ELASTICJOB_ROLE", "value": "worker"},
    ]
    env.append({"name": "ELASTICJOB_INDEX", "value": index})
    labels = {"elasticjob.dev/index": name}
    metadata = {"uid": name, "name": name, "resourceVersion": "1", "labels": labels}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"containers": [{"env": env}]}}, WatchedPod
    )


def test_each_exception_of_a_log_is_found_once() -> None:
    one = "Traceback (most recent call last):\n  File x\n    y()\nValueError: {}\n"
    assert errors_in_log("all well\n" + one.format(1) * 2 + "more\n" + one.format(2)) == [
        "ValueError: 1",
        "ValueError: 2",
    ]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler, as clock jumps do")
def test_a_process_wall_clock_jumps_and_its_monotonic_clock_does_not(tmp_path: Path) -> None:
    library = tmp_path / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, HERE / "clock.c", "-ldl"], check=True)
    (tmp_path / "me").write_text("3600")
    script = (
        "import time, datetime; "
        "print(time.time(), datetime.datetime.now().timestamp(), time.monotonic())"
    )
    clocks = {}
    for name in ("me", "nobody"):
        environ = {"CHAOS_CLOCKS": str(tmp_path), "CHAOS_CLOCK": name, "LD_PRELOAD": str(library)}
        output = subprocess.run(
            [sys.executable, "-c", script], env=environ, capture_output=True, check=True
        ).stdout
        clocks[name] = [float(number) for number in output.split()]
    ahead = [mine - other for mine, other in zip(clocks["me"], clocks["nobody"], strict=True)]
    assert [round(seconds / 3600) for seconds in ahead] == [1, 1, 0]


def test_a_process_can_write_only_while_its_files_are_not_limited(
    tmp_path: Path,
) -> None:
    def write() -> int:
        with (tmp_path / "file").open("wb", buffering=0) as file:
            return file.write(b"x")

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        assert limit_files(os.getpid(), 0)
        with pytest.raises(OSError, match="File too large"):
            write()
    finally:
        assert limit_files(os.getpid(), before[0])
    assert write() == 1


@pytest.mark.guarantee("random-faults")
def test_a_run_whose_faults_have_all_missed_is_a_problem(tmp_path: Path) -> None:
    record = Record(tmp_path / "actions.jsonl")
    record.fault("kill-pod", 1.0, None)
    record.check_hits(set())
    assert record.findings == []
    record.check_hits({"kill-pod"})
    assert record.findings == ["no fault has hit anything, and 1 found no target"]
    record.fault("kill-pod", 1.0, "Pod job-worker-0")
    record.check_hits({"kill-pod"})
    assert len(record.findings) == 1
