"""Tests data sets of a script that runs without an agent.

Accounting, checkpoints, files and streams work as they do with an agent.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from queue import Queue
from typing import Any

import elasticjob
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

CHECKPOINTS: dict[str, Any] = {
    "size": 100,
    "shard_size": 7,
    "epochs": 2,
    "shuffle": True,
    "seed": 5,
}


def test_training_continues_from_the_done_shards_of_a_checkpoint() -> None:
    shards = elasticjob.shards("data", **CHECKPOINTS)
    first = [shards.take() for _ in range(9)]
    shards.done(*[shard for shard in first[:6] if shard is not None])
    saved = shards.checkpoint(timeout=10)
    shards.done(*[shard for shard in first[6:] if shard is not None])
    assert shards.flush(10)
    shards.close()

    again = elasticjob.shards("data", **CHECKPOINTS, restore=saved)
    rest = []
    for shard in again:
        rest.append(shard)
        again.done(shard)
    assert [shard.id for shard in rest[:3]] == [
        shard.id for shard in first[6:] if shard is not None
    ]
    assert {shard.id for shard in rest}.isdisjoint(
        shard.id for shard in first[:6] if shard is not None
    )
    assert len(rest) == len(again) - 6
    anew = elasticjob.shards("data", **CHECKPOINTS, restore=b"")
    assert anew.take() == first[0]
    with pytest.raises(elasticjob.AgentError, match="seed 5; data has 6"):
        elasticjob.shards("data", **{**CHECKPOINTS, "seed": 6}, restore=saved)


def test_a_shard_that_is_given_up_does_not_keep_the_data_set_from_ending() -> None:
    shards = elasticjob.shards("data", size=10, shard_size=1)
    for shard in shards:
        if shard.id == 4:
            shards.fail(shard, "damaged")
        else:
            shards.done(shard)
    assert shards.finished


def test_unused_shards_are_returned_at_the_end() -> None:
    shards = elasticjob.shards("data", size=10, shard_size=1, prefetch=4)
    taken = shards.take()
    assert taken is not None
    shards.close()
    assert shards.take() is None
    shards.done(taken)
    assert shards.flush(10)


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.text("abä\r ", max_size=6), max_size=20), min_size=1, max_size=4).filter(
        any
    ),
    st.integers(1, 7),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_every_line_of_every_file_is_leased_once(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[str]],
    lines_per_shard: int,
    shuffle: bool,
    ended: bool,
    indexed: bool,
) -> None:
    folder = tmp_path_factory.mktemp("text")
    files = [[line.rstrip("\r") + "." for line in lines] for lines in files]
    paths = []
    for number, lines in enumerate(files):
        paths.append(folder / f"{number}.txt")
        text = "".join(f"{line}\n" for line in lines)
        paths[-1].write_bytes((text if ended else text.removesuffix("\n")).encode())
    index = folder / "index" if indexed else None
    for _ in range(2):  # the second time the index exists already
        shards = elasticjob.text_shards(
            "text", paths, lines_per_shard=lines_per_shard, shuffle=shuffle, index=index
        )
        read: Counter[tuple[int, int, str]] = Counter()
        for shard in shards:
            lines = list(shard.lines())
            assert 0 < len(lines) == shard.end - shard.start <= lines_per_shard
            read.update((shard.part, shard.start + place, line) for place, line in enumerate(lines))
            shards.done(shard)
        assert read == Counter(
            (f, place, line) for f, lines in enumerate(files) for place, line in enumerate(lines)
        )


def test_a_file_is_counted_again_only_when_it_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    index = tmp_path / "index"
    file.write_text("1\r\n2\r\n3\r\n")
    first = elasticjob.text_shards("text", [file], lines_per_shard=2, index=index)
    assert [list(shard.lines()) for _ in range(len(first)) if (shard := first.take())] == [
        ["1", "2"],
        ["3"],
    ]
    (kept,) = index.iterdir()
    kept.write_text(kept.read_text().replace('"lines": 3', '"lines": 4'))
    assert (
        len(elasticjob.text_shards("text", [file], lines_per_shard=1, index=tmp_path / "other"))
        == 3
    )
    shards = elasticjob.text_shards("text", [file], lines_per_shard=2, index=index)
    last = [shards.take(), shards.take()][-1]
    assert last is not None
    assert last.end == 4, "what is kept is believed"
    with pytest.raises(ValueError, match=r"a\.txt ends in line 3; it had 4 lines or more"):
        list(last.lines())
    kept.write_text("damaged")
    assert len(elasticjob.text_shards("text", [file], lines_per_shard=2, index=index)) == 2
    file.write_text("1\n")
    assert len(elasticjob.text_shards("text", [file], lines_per_shard=2, index=index)) == 1


def test_unreadable_files_and_invalid_numbers_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        elasticjob.text_shards("text", [tmp_path / "nowhere"], lines_per_shard=1)
    with pytest.raises(ValueError, match="lines_per_shard=0"):
        elasticjob.text_shards("text", ["a"], lines_per_shard=0)
    with pytest.raises(ValueError, match="there must be files"):
        elasticjob.text_shards("text", [], lines_per_shard=1)
    with pytest.raises(ValueError, match="use shorter ones"):
        elasticjob.text_shards("text", ["x" * 600_000], lines_per_shard=1)
    (tmp_path / "empty").touch()
    with pytest.raises(elasticjob.AgentError, match="size is 0"):
        elasticjob.text_shards("text", [tmp_path / "empty"], lines_per_shard=1)


def test_a_stream_is_leased_as_it_grows_until_it_is_declared_complete() -> None:
    shards = elasticjob.stream_shards("events", shard_size=10, size=5)
    assert shards.take(0.01) is None
    grown = threading.Thread(target=shards.extend, args=(25,))
    grown.start()
    taken = [shards.take(10), shards.take(10)]
    grown.join()
    assert [(s.start, s.end) for s in taken if s is not None] == [(0, 10), (10, 20)]
    assert shards.extend(3) == 25
    shards.done(*[shard for shard in taken if shard is not None])
    saved = shards.checkpoint(timeout=10)
    shards.extend(25, final=True)
    last = shards.take(10)
    assert last is not None
    assert (last.start, last.end) == (20, 25)
    shards.done(last)
    assert shards.take(10) is None
    assert shards.finished
    with pytest.raises(elasticjob.AgentError, match="has ended with 25"):
        shards.extend(26)
    with pytest.raises(elasticjob.AgentError, match="not declared as streamed"):
        elasticjob.shards("data", size=1, shard_size=1).extend(2)
    again = elasticjob.stream_shards("events", shard_size=10, restore=saved)
    assert again.extend(0, final=True) == 25
    assert [(shard.start, shard.end) for shard in [again.take(10)] if shard is not None] == [
        (20, 25)
    ]


def test_a_forked_process_that_uses_its_parents_shards_gets_an_error_at_once() -> None:
    shards = elasticjob.shards("data", size=10, shard_size=1)
    shard = shards.take()
    assert shard is not None
    parent = os.getpid()
    shards._pid = parent + 1  # what a fork looks like from the inside
    for use in (
        shards.take,
        shards.close,
        shards.checkpoint,
        lambda: shards.done(shard),
        lambda: shards.flush(1),
    ):
        with pytest.raises(
            elasticjob.AgentError,
            match=f"opened by process {parent + 1} and is used in process {parent}",
        ):
            use()


def test_more_is_not_leased_ahead_than_a_worker_may_have() -> None:
    with pytest.raises(ValueError, match="prefetch=10001 must be at most 10000"):
        elasticjob.shards("data", size=10, shard_size=1, prefetch=10_001)


def test_a_report_that_is_refused_raises_an_error_where_it_is_waited_for() -> None:
    shards = elasticjob.shards("data", size=10, shard_size=1)
    shards.done(elasticjob.Shard(id=10, epoch=0, start=10, end=11))
    with pytest.raises(elasticjob.AgentError, match="shard 10 does not exist"):
        shards.flush(60)


class Full:
    """A source that grants four shards and no more before they are reported."""

    def call(self, name: str, **fields: Any) -> Future[dict[str, Any]]:
        answer: Future[dict[str, Any]] = Future()
        given = (
            [{"id": n, "epoch": 0, "start": n, "end": n + 1, "part": 0} for n in range(4)]
            if not self.given
            else []
        )
        self.given = True
        answer.set_result({"shards": given, "finished": False, "most": 4})
        return answer

    given = False


def test_a_process_with_too_many_unreported_shards_logs_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = sys.modules[
        "elasticjob.shards"
    ]  # the package's attribute of this name is the function
    monkeypatch.setattr(module, "_STARVED_SECONDS", 0.0)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    shards = elasticjob.Shards(Full(), "data", elasticjob.Shard, count=8, prefetch=8)
    for _ in range(4):
        assert shards.take(10) is not None
    said = threading.Event()
    while not caplog.messages:
        said.wait(0.01)
    shards.take(0.1)
    shards.close()
    assert caplog.messages == [
        "data set data: 4 shards are leased and not reported; "
        "with this number of workers and data sets a worker may hold 4. "
        "Report them done more often, or make shards larger."
    ]


class Slow:
    """Answers a request for shards when the test says so."""

    def __init__(self) -> None:
        self.asked: Queue[tuple[int, Future[dict[str, Any]]]] = Queue()
        self.leased = 0

    def call(self, name: str, **fields: Any) -> Future[dict[str, Any]]:
        answer: Future[dict[str, Any]] = Future()
        if name == "lease_shards":
            self.asked.put((fields["count"], answer))
        return answer

    def answer(self) -> int:
        """Give the next request all shards that it asks for; return how many."""
        count, answer = self.asked.get(timeout=10)
        numbers = range(self.leased, self.leased + count)
        self.leased += count
        given = [{"id": n, "epoch": 0, "start": n, "end": n + 1, "part": 0} for n in numbers]
        answer.set_result({"shards": given, "finished": False, "most": 100})
        return count


def test_twice_as_many_shards_are_leased_ahead_when_the_training_has_waited_for_them() -> None:
    source = Slow()
    shards = elasticjob.Shards(source, "data", elasticjob.Shard, count=100, prefetch=4)
    try:
        assert source.answer() == 4
        for _ in range(4):
            assert shards.take(10) is not None
        waiting = threading.Thread(target=shards.take, args=(10,))
        waiting.start()
        while not shards._waits:
            time.sleep(0.01)
        came_late = source.answer()
        waiting.join()
        assert came_late + source.answer() >= 8, "with 4 leased ahead it would be 5 at most"
    finally:
        shards.close()
