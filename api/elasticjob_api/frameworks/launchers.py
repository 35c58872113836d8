"""The launchers of PyTorch's programs, which start the training processes of their pod themselves.

The agent starts one launcher in each pod and sets the options of a world. torchrun, and what calls
it, read `PET_*` (torchrun.py). The others get options in the command, directly after the program,
with references to variables that the agent replaces in each world.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from types import MappingProxyType

from elasticjob_api.frameworks import torchrun, wrappers

MODE = "ELASTICJOB_ACCELERATE_MODE"
"""The agent's variable with the option of Accelerate that this world needs."""
HOST_FILE = "ELASTICJOB_DEEPSPEED_HOSTS"
"""The agent's variable with the path of the file of hosts that it writes for each world."""


_BEFORE_COMMAND = (
    r"(?:^|[;&|(\n]|\{(?=\s))[ \t]*"
    rf"(?:(?:{wrappers.CALL}|then|do|else|\w+={wrappers.WORD}*){wrappers.SPACE})*"
    rf"(?:{wrappers.WORD}*/)?"
)
"""What a shell's text has before a command: the word after `pip install` is none."""


@dataclass(frozen=True)
class Launcher:
    """A program that starts training processes.

    Attributes:
        name: its name in messages.
        program: the pattern of its call.
        options: patterns of the options that the agent sets, which a job must not.
        flags: those of them that have no value.
        world: the options that the agent adds to the command.
        mark: a variable that the launcher sets in its processes, and that it does not have itself.
    """

    name: str
    program: str
    options: tuple[str, ...]
    flags: tuple[str, ...]
    world: tuple[str, ...] = ()
    mark: str = "TORCHELASTIC_RUN_ID"

    def call(self) -> re.Pattern[str]:
        """Return the pattern of its call in a command or in the text of a shell."""
        before = torchrun.BEFORE_CALL if self.name == "torchrun" else _BEFORE_COMMAND
        end = torchrun.END_OF_CALL
        return re.compile(rf"{before}(?:{self.program})(?=[\s{end}]|$)")


_PYTHON = rf"{torchrun.PYTHON}\s+-m\s+"
TORCHRUN = Launcher("torchrun", torchrun.PROGRAM, torchrun.WITH_VALUE, (torchrun.STANDALONE,))
ACCELERATE = Launcher(
    "accelerate launch",
    rf"accelerate(?:\s+|-)launch|{_PYTHON}accelerate\.commands\.launch",
    (
        *("num-processes", "num-machines", "machine-rank", "main-process-ip", "main-process-port"),
        *(r"rdzv-\w+", "max-restarts", r"deepspeed-(?:hostfile|\w+-filter|multinode-launcher)"),
    ),
    ("multi-gpu", "cpu", "same-network"),
    (
        *("--num_machines=$(PET_NNODES)", "--machine_rank=$(PET_NODE_RANK)"),
        *("--num_processes=$(WORLD_SIZE)", "--main_process_ip=$(PET_MASTER_ADDR)"),
        *("--main_process_port=$(PET_MASTER_PORT)", "--deepspeed_multinode_launcher=standard"),
        "--monitor_interval=0.5",  # as torchrun.DEFAULTS; a later one of the user's overrides it
    ),
    "ACCELERATE_MIXED_PRECISION",
)
DEEPSPEED = Launcher(
    "deepspeed",
    rf"deepspeed|{_PYTHON}deepspeed\.launcher\.runner",
    (
        *("-H", "-i", "-e", "hostfile", "include", "exclude", "num-nodes", "num-gpus", "node-rank"),
        *("master-addr", "master-port", "launcher", "min-elastic-nodes", "max-elastic-nodes"),
    ),
    ("no-ssh", "elastic-training"),
    (
        *("--no_ssh", f"--hostfile=$({HOST_FILE})", "--node_rank=$(PET_NODE_RANK)"),
        *("--master_addr=$(PET_MASTER_ADDR)", "--master_port=$(PET_MASTER_PORT)"),
    ),
    "CROSS_RANK",
)
FABRIC = Launcher(
    "fabric run",
    r"fabric\s+run(?:\s+model)?|lightning\s+run\s+model",
    ("devices", "num-nodes", "node-rank", "main-address", "main-port"),
    (),
    (
        *("--devices=$(PET_NPROC_PER_NODE)", "--num-nodes=$(PET_NNODES)"),
        *("--node-rank=$(PET_NODE_RANK)", "--main-address=$(PET_MASTER_ADDR)"),
        "--main-port=$(PET_MASTER_PORT)",
    ),
)
LAUNCHERS = (TORCHRUN, ACCELERATE, DEEPSPEED, FABRIC)

FIELDS: Mapping[str, str] = MappingProxyType(
    {
        **torchrun.FIELDS,
        **dict.fromkeys(("num-machines", "num-nodes"), "replicas"),
        **dict.fromkeys(("num-processes", "num-gpus", "devices"), "slotsPerReplica"),
    }
)
"""Fields of a role by the options that they replace."""

SUBSTITUTION = re.compile(r"\$\((?>(?:[^()]++|\([^()]*+\))*)\)|`[^`]*`")
"""The output of a command as a value in the text of a shell."""
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_SCRIPT = re.compile(torchrun.SCRIPT)
_END_OF_CALL = re.compile(f"[{torchrun.END_OF_CALL}]")
_OTHER_STRATEGY = re.compile(r"--(?:config[-_]file|use[-_]\w+|tpu)\b")
"""Options of Accelerate that choose how its processes train together."""


def launcher_of(command: Sequence[str]) -> Launcher | None:
    """Return the launcher that a command runs.

    The command is the launcher, such as `torchrun` or `python -m torch.distributed.run`, or a shell
    whose `-c` text contains it. Either may follow wrappers such as `nice`.
    """
    _, own = wrappers.split(command)
    program = PurePath(own[0]).name
    if program in torchrun.SHELLS:
        text = _shell_text(own)
        return next((each for each in LAUNCHERS if each.call().search(text)), None)
    joined = " ".join([program, *own[1:]])
    return next((each for each in LAUNCHERS if each.call().match(joined)), None)


def with_world(command: Sequence[str]) -> list[str]:
    """Return a command with the references to its world that its launcher needs."""
    launcher = launcher_of(command)
    if launcher is None or not launcher.world:
        return list(command)
    options = list(launcher.world)
    before, own = wrappers.split(command)
    shell = PurePath(own[0]).name in torchrun.SHELLS
    text = _shell_text(own) if shell else " ".join(own)
    if launcher is ACCELERATE and not _OTHER_STRATEGY.search(text):
        options.append(f"--$({MODE})")
    if shell:
        inserted = launcher.call().sub(lambda call: " ".join([call[0], *options]), text)
        return [inserted if word == text else word for word in command]
    words = _words_of_call(launcher, own)
    return [*before, *own[:words], *options, *own[words:]]


def fixed_options(command: Sequence[str], remedies: Mapping[str, str]) -> str | None:
    """Return why a command's options of its launcher are refused, or None if they are not.

    They are those that the agent sets. A fixed world would never change. A torchrun that restarts
    its processes alone would wait for the other nodes, whose processes are not restarted.

    Options of the script are not checked, nor values with variables, nor a shell's text that starts
    the launcher several times.

    Args:
        command: the training command.
        remedies: the user's setting in place of an option, by the name of the option.
    """
    launcher = launcher_of(command) if command else None
    if launcher is None:
        return None
    fixed: list[str] = []
    instead: dict[str, str] = {}
    _, own = wrappers.split(command)
    words = _words_after(launcher, own)
    names = "|".join(each for each in launcher.options + launcher.flags if each[0] != "-")
    short = "|".join(each for each in launcher.options if each[0] == "-")
    pattern = re.compile(rf"(?:--({names}){f'|({short})' if short else ''})(?:=|$)")
    flags = (*launcher.flags, *torchrun.OTHER_FLAGS)
    takes_following = False
    for word, following in pairwise([*words, ""]):
        name = word.replace("_", "-")
        if _SCRIPT.fullmatch(name) or (word[:1] != "-" and not takes_following):
            break
        option = pattern.match(name)
        takes_following = (
            word[:1] == "-" and "=" not in word and name.removeprefix("--") not in flags
        )
        if option and "$" not in (following if takes_following else word):
            fixed.append(repr(word))
            if remedy := remedies.get(option[1]):
                instead[remedy] = word.partition("=")[0]
    if not fixed:
        return None
    settings = ", ".join(f"{remedy} in place of {option}" for remedy, option in instead.items())
    return (
        f"the agent sets {', '.join(fixed)} for {launcher.name} in each world; remove "
        f"{'it' if len(fixed) == 1 else 'them'}{settings and f', and set {settings}'}"
    )


def _words_of_call(launcher: Launcher, command: Sequence[str]) -> int:
    """Return the number of words that call the launcher."""
    found = launcher.call().match(" ".join([PurePath(command[0]).name, *command[1:]]))
    return len(found[0].split()) if found else 0


def _words_after(launcher: Launcher, command: Sequence[str]) -> list[str]:
    """Return the launcher's options and those of the script, or nothing if it is not clear."""
    if PurePath(command[0]).name not in torchrun.SHELLS:
        return list(command[_words_of_call(launcher, command) :])
    text = _shell_text(command).replace("\\\n", " ")
    first, *others = launcher.call().finditer(text)
    if others:
        return []
    own = SUBSTITUTION.sub("$", text[first.end() :])
    own = _QUOTED.sub(lambda quoted: re.sub(r"[\s;&|()]", "_", quoted[0]), own)
    (own, *_) = _END_OF_CALL.split(own, maxsplit=1)
    return [word.strip("\"'") for word in own.split()]


def _shell_text(command: Sequence[str]) -> str:
    """Return the text that a shell runs: with `-c` the first word that belongs to no option."""
    runs_text = False
    words = iter(command[1:])
    for word in words:
        if word in ("-", "--"):
            word = next(words, "")
        elif word[:1] in ("-", "+"):
            is_short = word[:2] != "--"
            runs_text |= is_short and "c" in word
            if (is_short and "o" in word.lower()) or word in ("--rcfile", "--init-file"):
                next(words, "")
            continue
        return word if runs_text else ""
    return ""
