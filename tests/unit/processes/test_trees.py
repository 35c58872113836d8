"""Which processes belong to the tree of a process, and which code a shell reports for its end."""

from __future__ import annotations

import signal
import subprocess

import pytest
from elasticjob_processes import killing
from elasticjob_processes.killing import kill, kill_tree, shell_code
from elasticjob_processes.table import ProcessEntry, process_table, trees
from hypothesis import given
from hypothesis import strategies as st


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=30), st.sets(st.integers(2, 31), max_size=4)
)
def test_every_process_is_counted_for_the_nearest_watched_ancestor(
    parents: list[int], roots: set[int]
) -> None:
    table = {pid: ProcessEntry(min(parent, pid - 1), 0, 1) for pid, parent in enumerate(parents, 2)}
    for root, tree in trees(table, roots).items():
        for pid in tree:
            at = pid
            while at not in roots:
                at = table[at].parent
            assert at == root
    counted = [pid for tree in trees(table, roots).values() for pid in tree]
    assert len(counted) == len(set(counted))


def test_a_process_of_the_session_is_counted_after_its_parent_has_exited() -> None:
    table = {
        10: ProcessEntry(1, 10, 5),
        11: ProcessEntry(1, 10, 7),
        12: ProcessEntry(11, 12, 1),
        13: ProcessEntry(1, 13, 9),
    }
    assert set(trees(table, {10})[10]) == {10, 11, 12}


def test_the_root_of_a_tree_is_killed_before_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {6: ProcessEntry(7, 7, 2), 7: ProcessEntry(1, 7, 1)}
    killed: list[int] = []
    monkeypatch.setattr(killing, "process_table", lambda: table)
    monkeypatch.setattr(killing, "kill", killed.append)
    kill_tree(7)
    assert killed == [7, 6]


def test_a_whole_tree_is_killed_and_nothing_else() -> None:
    with (
        subprocess.Popen(["sh", "-c", "sleep 60 & setsid sleep 60 & wait"]) as tree,
        subprocess.Popen(["sleep", "60"]) as other,
    ):
        while len(found := trees(process_table(), {tree.pid})[tree.pid]) < 3:
            pass
        kill_tree(tree.pid)
        assert shell_code(tree.wait(timeout=60)) == 128 + signal.SIGKILL
        while set(found) & set(process_table()):
            pass
        assert other.poll() is None
        assert kill(other.pid)
