"""Tests that commands of torchrun lose the options that the agent sets, and nothing else."""

from __future__ import annotations

import shlex

import pytest
from elasticjob_api.frameworks import launchers
from elasticjob_cli.convert.torchrun import without_world
from hypothesis import given, settings
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


OPTIONS = {
    "torchrun": ["--nnodes", "--rdzv_conf", "--standalone", "--log-dir", "--tee", "--run-path"],
    "accelerate launch": ["--num_processes", "--multi_gpu", "--mixed_precision", "--rdzv-backend"],
    "deepspeed": ["--hostfile", "-H", "--num_gpus", "--no_ssh", "-i", "--master_port"],
    "fabric run": ["--devices", "--num-nodes", "--strategy", "--main-address"],
}
FLAGS = ("--standalone", "--run-path", "--multi_gpu", "--no_ssh")
VALUES = ("2", "a b", "x=1;y", "$(hostname -i):29400", "`nproc`", "$N", '"', "((", "\\")


@given(st.data())
@settings(max_examples=200)
def test_the_operator_accepts_each_command_without_the_options(data: st.DataObject) -> None:
    launcher = data.draw(st.sampled_from(sorted(OPTIONS)))
    words = [*data.draw(st.sampled_from([[], ["nice", "-n", "5"]])), *launcher.split()]
    for option in data.draw(st.lists(st.sampled_from(OPTIONS[launcher]), max_size=5)):
        value = data.draw(st.sampled_from(VALUES))
        if option in FLAGS:
            words.append(option)
        else:
            words += data.draw(st.sampled_from([[option, value], [f"{option}={value}"]]))
    script = data.draw(st.sampled_from([["train.py"], ["$SCRIPT"], ["-m", "pkg"], ["./a b"]]))
    words += [*script, "--nnodes=2", "--devices", "3"]
    in_a_shell = ["bash", "-c", "cd /x && " + shlex.join(words) + " | tee log"]
    for command in (words, in_a_shell):
        found = without_world(command)
        assert found is not None
        assert launchers.fixed_options(found.words, {}) is None, found.words
        assert "--nnodes=2" in " ".join(found.words)


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
            without_world(["sh", "-c", "torchrun --x=" + part * 10_000 + end])
