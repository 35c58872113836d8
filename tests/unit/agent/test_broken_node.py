"""Which messages say that a node is broken: those of its own GPUs and network card, no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticjob_agent import broken_node
from elasticjob_agent.broken_node import KernelLog
from hypothesis import given
from hypothesis import strategies as st

XID = "NVRM: Xid (PCI:0000:3b:00): {}, pid=4711, name=python"


@pytest.mark.guarantee("broken-node")
@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("[12.3] " + XID.format(79), "the GPU has fallen off the bus"),
        (XID.format(48), "uncorrectable ECC error"),
        (
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            "uncorrectable ECC error",
        ),
        (
            "node7:81:99 [3] NCCL WARN Cuda failure 'uncorrectable ECC error encountered'",
            "uncorrectable ECC error",
        ),
        (
            "n:1:2 [0] transport/net_ib.cc:92 NCCL WARN NET/IB : mlx5_0:1 Got async fatal event: "
            "local catastrophic error",
            "the network card, or its link, has failed",
        ),
        (
            "Unable to determine the device handle: GPU is lost.  Reboot the system",
            "the GPU is lost",
        ),
    ],
)
def test_a_fault_of_the_node_is_recognized_wherever_it_is_among_the_last_lines(
    line: str, meaning: str
) -> None:
    lines = ["Traceback (most recent call last):", line, *["frame #1: <unknown>"] * 100]
    assert broken_node.in_output(lines) == f"{meaning}: {line}"


@pytest.mark.guarantee("broken-node")
@pytest.mark.parametrize(
    "line",
    [
        *(XID.format(code) for code in (13, 31, 43, 45, 63, 94, 179, 7900)),
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: invalid device ordinal",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed",
        "ncclRemoteError: A call failed possibly due to a remote process exiting",
        "NCCL WARN NET/IB : mlx5_0:1 Got async event : port active",
        "FileNotFoundError: Xid (PCI:0000:3b:00): 79",
    ],
)
def test_faults_of_the_program_or_of_another_member_are_not_the_nodes(line: str) -> None:
    assert broken_node.in_output([line]) == ""


@given(st.lists(st.text(max_size=200), max_size=30), st.text(max_size=5000))
def test_hostile_lines_are_bounded(lines: list[str], end: str) -> None:
    problem = broken_node.in_output([*lines, XID.format(79) + end + "x" * 5000])
    assert 0 < len(problem) < 400
    assert broken_node.in_output([XID.format(79), *["x"] * broken_node.MOST_LINES]) == ""
    assert broken_node.in_output(["x" * 100_000 + XID.format(79)]) == ""


def test_the_kernel_log_counts_since_the_start_and_for_the_containers_gpus_only(
    tmp_path: Path,
) -> None:
    file = tmp_path / "kmsg"
    gpus = tmp_path / "gpus"
    (gpus / "0000:3B:00.0").mkdir(parents=True)
    file.write_text(f"4,1,1,-;{XID.format(79)}\n")
    log = KernelLog(file, gpus)
    assert log.problem() == ""
    with file.open("a") as end:
        end.write(f"4,2,2,-;{XID.format(79).replace('3b', '4c')}\n4,3,3,-;usb 1-1: reset\n")
    assert log.problem() == "", "a GPU of another pod"
    with file.open("a") as end:
        end.write(f"4,4,4,-;{XID.format(79)}\n SUBSYSTEM=pci\n")
    assert log.problem().startswith("the GPU has fallen off the bus: 4,4,4,-;NVRM: Xid")
    log.close()
    assert KernelLog(tmp_path / "none", gpus).problem() == ""
    assert KernelLog(file, tmp_path / "none").problem() == "", "a container without GPUs"
