"""The stacks of a stalled training: who waits in which collective, and bounds on what is kept."""

from __future__ import annotations

import pytest
from elasticjob_master.core import collectives
from elasticjob_master.core.collectives import awaited, summary
from elasticjob_master.core.stacks import (
    LONGEST_TEXT,
    MOST_CHARACTERS,
    MOST_FRAMES,
    MOST_THREADS,
    Collection,
    Stack,
    bounded,
)

TRAIN = "train (train.py:12)"
C10D = "torch/distributed/distributed_c10d.py"


RECOGNIZED = {
    "torch.distributed all_reduce": f"all_reduce ({C10D}:1541) < train (t.py:10)",
    "torch.distributed all_gather_object": f"all_gather ({C10D}:9) < all_gather_object ({C10D}:8)",
    "torch.distributed c10d::Work::wait": "f (libc.so.6) < c10d::Work::wait (libtorch_cpu.so)",
    "NCCL ncclGroupEnd": f"poll (libc.so.6) < ncclGroupEnd (libnccl.so.2) < {TRAIN}",
    "Gloo gloo::allreduce": "f (libc.so.6) < gloo::allreduce (libgloo.so)",
    "Horovod synchronize": f"synchronize (horovod/torch/mpi_ops.py:1261) < {TRAIN}",
    "JAX sync_global_devices": "_value (jax/_src/array.py:3) < "
    "sync_global_devices (jax/experimental/multihost_utils.py:9)",
    "MPI MPI_Allreduce": f"PMPI_Allreduce (libmpi.so) < {TRAIN}",
    "elasticjob wait": f"KeyValue.wait (elasticjob/key_value.py:66) < {TRAIN}",
}
NOT_RECOGNIZED = (TRAIN, f"get_rank ({C10D}:1)", "forward (torch/distributed/fsdp/api.py:9)")


@pytest.mark.parametrize(
    ("collective", "frames"), [*RECOGNIZED.items(), *(("", frame) for frame in NOT_RECOGNIZED)]
)
def test_a_collective_is_recognized_by_its_frames(collective: str, frames: str) -> None:
    assert awaited(frames.split(" < ")) == collective


def test_the_summary_names_the_rank_that_does_not_wait() -> None:
    waiting = Stack((f"barrier ({C10D}:1)", TRAIN))
    groups = [
        (waiting, (0, 1, 3)),
        (Stack(("pysleep (timemodule.c:2)", TRAIN)), (2,)),
        (Stack(problem="silent"), (4,)),
    ]
    assert summary(groups) == (
        "ranks 0-1, 3 wait in torch.distributed barrier; "
        "rank 2 does not: it is in train (train.py:12); rank 4: silent"
    )
    many = [(Stack((f"f{rank} ({'x' * 190}:1)",)), (rank, rank + 2000)) for rank in range(999)]
    assert summary(many).startswith("ranks 0, 2000 are in f0 (x")
    assert len(summary(many)) <= collectives.LONGEST_TEXT
    assert "and 992 more are in f" in summary([(Stack(("f (x:1)",)), tuple(range(0, 1994, 2)))])


def test_the_first_answer_of_each_member_counts_and_late_ones_are_named() -> None:
    ranks = {"a": range(2), "b": range(2, 3), "c": range(3, 4)}
    found = Collection(7, 1, ranks, until=10.0)
    same = Stack((TRAIN,), others=("other",))
    found.answer("a", 7, {0: Stack((TRAIN,)), 1: same, 9: Stack(("unasked",))})
    found.answer("a", 7, {0: Stack(("twice",))})
    found.answer("b", 6, {0: Stack(("of another request",))})
    found.answer("z", 7, {0: Stack(("not asked",))})
    assert not found.is_over(9.9)
    assert found.is_over(10.0)
    problems = [(stack.frames, bool(stack.problem), of) for stack, of in found.groups()]
    assert problems == [((TRAIN,), False, (0, 1)), ((), True, (2, 3))]


def test_hostile_stacks_are_bounded() -> None:
    frames = ["\x1b[31m" + "x" * 9999] * 999
    stack = bounded(frames, frames, "problem" * 999)
    assert (len(stack.frames), len(stack.others)) == (MOST_FRAMES, MOST_THREADS)
    assert {len(text) for text in (*stack.frames, stack.problem)} == {LONGEST_TEXT}
    assert stack.frames[0].isprintable()
    found = Collection(1, 1, {str(at): range(at, at + 1) for at in range(99)}, until=1.0)
    for at in range(99):
        found.answer(str(at), 1, {0: bounded([f"{at}", *frames], frames, "")})
    kept = [stack for stack, _ in found.groups() if stack.frames]
    assert sum(len(each) for stack in kept for each in stack.frames) <= MOST_CHARACTERS
    assert len(found.groups()) == len(kept) + 1
