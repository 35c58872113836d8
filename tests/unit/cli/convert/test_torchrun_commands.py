"""Tests that commands of torchrun lose the options that the agent sets, and nothing else."""

from __future__ import annotations

import pytest
from elasticjob_api.frameworks import launchers
from elasticjob_cli.convert.torchrun import without_world
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (["torchrun", "--nnodes=2", "train.py", "--nnodes=3"],
         ["torchrun", "train.py", "--nnodes=3"]),
        (["torchrun", "--nproc_per_node", "4", "--tee", "3", "train.py"],
         ["torchrun", "--tee", "3", "train.py"]),
        (["/opt/bin/torchrun", "--standalone", "train.py"], ["/opt/bin/torchrun", "train.py"]),
        (["torchrun", "--rdzv-id=1", "-m", "pkg.train", "--rdzv-x=1"],
         ["torchrun", "-m", "pkg.train", "--rdzv-x=1"]),
        (["python", "-m", "torch.distributed.run", "--nnodes", "1:4", "a b"],
         ["python", "-m", "torch.distributed.run", "a b"]),
        (["dlrover-run", "--auto-config", "--nnodes=2", "train.py"], ["torchrun", "train.py"]),
        (["dlrover-run", "--nnodes=2", "--numa-affinity", "train.py"], ["torchrun", "train.py"]),
        (["dlrover-run", "--precheck", "1", "--relaunch_on_worker_failure", "2", "train.py"],
         ["torchrun", "train.py"]),
        (["torchrun", "--run-path", "train.py", "--nnodes=3"],
         ["torchrun", "--run-path", "train.py", "--nnodes=3"]),
        (["sh", "-c", "cd /x && torchrun --nnodes=$N --max_restarts 3 t.py"],
         ["sh", "-c", "cd /x && torchrun t.py"]),
        (["bash", "-c", 'a; torchrun --nnodes="$N" t.py; torchrun u'],
         ["bash", "-c", "a; torchrun t.py; torchrun u"]),
    ],
)  # fmt: skip
def test_options_of_the_world_are_removed_up_to_the_script(
    words: list[str], changed: list[str]
) -> None:
    found = without_world(words)
    assert found is not None
    assert list(found.words) == changed
    assert launchers.launcher_of(found.words) is launchers.TORCHRUN
    assert launchers.fixed_options(found.words, {}) is None


@pytest.mark.parametrize(
    "words",
    [[], ["python", "train.py"], ["sh", "-c", "echo torchrunner --nnodes=2"], ["mytorchrun"]],
)
def test_other_commands_are_left_alone(words: list[str]) -> None:
    assert without_world(words) is None


def test_the_removed_options_are_known() -> None:
    found = without_world(
        ["torchrun", "--nnodes=2:5", "--nproc-per-node=auto", "--max_restarts", "3", "train.py"]
    )
    assert found is not None
    assert found.nodes(3) == (2, 5)
    assert (found.number("max-restarts"), found.number("nproc-per-node")) == (3, None)
    assert found.options["nproc-per-node"] == "auto"


@given(
    st.lists(st.text(max_size=20), max_size=6),
    st.sampled_from(["torchrun", "dlrover-run", "sh", "python"]),
)
def test_any_command_is_changed_or_left(words: list[str], program: str) -> None:
    without_world([program, "-c", *words])
    without_world([program, *words])


def test_a_hostile_text_takes_no_time() -> None:
    for part in (
        '${}"',
        "${x}",
        "--a=${}",
        "$",
        "torchrun ",
        "torchrun --nnodes=",
        "-",
        "\\ ",
        "'",
        "$(",
        "torchrun --a " * 2,
        "`",
        "$(x|",
        "$(()",
        "\ndeepspeed --a=$(",
        "accelerate launch --a ",
        "python -a ",
        ";a=nice ",
        "{",
    ):
        for end in ("", '"', "("):
            without_world(["sh", "-c", "torchrun --x=" + part * 20_000 + end])
