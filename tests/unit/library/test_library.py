"""`import elasticjob` without an agent: the same script runs by hand."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import elasticjob
import pytest
from elasticjob._agent_connection import AgentConnection
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fake_agent import fake_agent


def test_alone_it_is_rank_0_of_1_and_never_stops() -> None:
    world = elasticjob.world()
    assert (world.rank, world.size, world.round) == (0, 1, 0)
    elasticjob.report_step(3, total=10, samples=5, metrics={"loss": float("nan")})
    assert not elasticjob.should_stop()
    elasticjob.confirm_stop()


def test_alone_the_world_never_changes() -> None:
    assert not elasticjob.world_changed()
    assert elasticjob.next_world(timeout=60) == elasticjob.world()


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 3), st.integers(1, 9))
def test_alone_every_sample_is_leased_once_an_epoch(
    size: int, part: int, epochs: int, prefetch: int
) -> None:
    shards = elasticjob.shards("data", size=size, shard_size=part, epochs=epochs, prefetch=prefetch)
    trained: Counter[tuple[int, int]] = Counter()
    count = 0
    for shard in shards:
        trained.update((shard.epoch, sample) for sample in range(shard.start, shard.end))
        shards.done(shard)
        count += 1
    assert count == len(shards)
    assert trained == {(epoch, sample): 1 for epoch in range(epochs) for sample in range(size)}
    assert shards.finished


class Forgetful:
    """A source that leases four shards twice, as a master that was killed before it stored them."""

    def __init__(self) -> None:
        self.leases = 0
        self.done: list[int] = []

    def call(self, name: str, **fields: Any) -> Future[dict[str, Any]]:
        answer: Future[dict[str, Any]] = Future()
        if name == "lease_shards":
            self.leases += 1
            first = 4 * max(0, self.leases - 2)
            shards = [
                {"id": n, "epoch": 0, "start": n, "end": n + 1}
                for n in range(first, min(first + 4, 8))
            ]
            answer.set_result({"shards": shards, "finished": len(self.done) == 8})
        else:
            self.done.extend(fields["done"])
            answer.set_result({"stale": []})
        return answer


def test_a_shard_that_a_restarted_master_leases_again_is_returned_once() -> None:
    source = Forgetful()
    shards = elasticjob.Shards(source, "data", elasticjob.Shard, count=8, prefetch=4)
    taken = [shards.take(10) for _ in range(8)]
    assert [shard.id for shard in taken if shard is not None] == list(range(8))
    shards.done(*[shard for shard in taken if shard is not None])
    assert shards.take(10) is None
    assert source.done == list(range(8))


def test_alone_a_checkpoint_may_always_be_written() -> None:
    assert elasticjob.may_commit()


@pytest.mark.guarantee("member-cut-off")
def test_without_an_answer_in_time_nothing_may_be_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with fake_agent(tmp_path, monkeypatch, may_commit=None) as agent:
        assert not elasticjob.may_commit(timeout=0.2)
        assert agent.messages[0]["call"] == "may_commit"
        assert agent.messages[0]["timeout"] < 0.2
    monkeypatch.setenv("ELASTICJOB_SOCKET", str(tmp_path / "nothing"))
    assert not elasticjob.may_commit()
    assert "the agent has not answered within 0.2 s" in caplog.text
    assert "the agent is unreachable" in caplog.text


def test_a_late_answer_to_a_suspended_process_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: Future[dict[str, Any]] = Future()
    answer.set_result({})
    with fake_agent(tmp_path, monkeypatch):
        monkeypatch.setattr(AgentConnection, "call", lambda *_args, **_fields: answer)
        assert elasticjob.may_commit(timeout=5)
        times = iter([100.0, 106.0])
        monkeypatch.setattr("elasticjob.commit.time.monotonic", lambda: next(times, 106.0))
        assert not elasticjob.may_commit(timeout=5)


def test_alone_values_are_kept_and_a_barrier_is_open() -> None:
    store = elasticjob.KeyValue()
    elasticjob.barrier("epoch", timeout=0)
    assert store.get("a") is None
    assert store.compare_and_set("a", None, b"1") == b"1"
    assert store.compare_and_set("a", None, b"2") == b"1"
    assert store.compare_and_set("a", b"1", b"3") == b"3"
    assert [store.add("n"), store.add("n", -5)] == [1, -4]
    store.set("b", b"\x00")
    assert store.wait("a", "n", "b", timeout=0) == [b"3", b"-4", b"\x00"]
    with pytest.raises(TimeoutError, match="c"):
        store.wait("a", "c", timeout=0.01)
    assert [store.delete("n"), store.delete("n")] == [True, False]


def test_bad_numbers_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="shard_size=0"):
        elasticjob.shards("data", size=1, shard_size=0)
    with pytest.raises(ValueError, match="step=-1"):
        elasticjob.report_step(-1)


def test_the_library_needs_the_standard_library_only() -> None:
    code = (
        "import elasticjob, sys; "
        "print([m for m in sys.modules if m.split('.')[0] in ('grpc', 'google', 'psutil')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
