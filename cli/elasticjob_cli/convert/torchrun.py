"""Removes the options that the agent sets from commands of launchers and dlrover-run. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from types import MappingProxyType

from elasticjob_api.frameworks import launchers, wrappers
from elasticjob_api.frameworks import torchrun as of_torchrun
from elasticjob_api.frameworks.launchers import DEEPSPEED, LAUNCHERS, TORCHRUN, Launcher
from elasticjob_api.limits import MAX_RESTARTS, MAX_SLOTS

from elasticjob_cli.convert import templates
from elasticjob_cli.convert.jobs import CONTAINER, Draft
from elasticjob_cli.convert.tables.rows import TABLES, Fate, Row, option

_DLROVER_RUN = "dlrover-run"
_CALL = re.compile(rf"(?:^|(?<=[\s;&|(/]))(?:{of_torchrun.PROGRAM}|{_DLROVER_RUN})(?=\s)")
_VALUE = (
    r"""(?>(?:"[^"]*"|'[^']*'|"""
    rf"""{launchers.SUBSTITUTION.pattern}|\$\{{[^}}]*\}}|\$(?![({{])|[^\s;&|"'()$`])+)"""
)
_NAME = r"--?[A-Za-z][\w-]*"
_OPTION = re.compile(
    rf"""[\s\\]*(?:(?P<quote>["'])(?P<quoted>{_NAME})(?:=(?P<text>(?:(?!(?P=quote))[\s\S])*))?(?P=quote)|"""
    rf"(?P<plain>{_NAME})(?:=(?P<value>{_VALUE}))?)(?=[\s;&|)]|$)"
)
_SPACE_VALUE = re.compile(rf"[ \t\\\n]+(?P<value>(?!-){_VALUE})")
_SCRIPT = re.compile(of_torchrun.SCRIPT)
_OF_HOSTS = ("include", "exclude", "i", "e")
"""Options of deepspeed that choose hosts and GPUs."""
_MEMBERS = ("nnodes", "num-machines", "num-nodes")
_PROCESSES = ("nproc-per-node", "num-gpus", "devices", "num-processes")

_OF_A_POD = {
    "RANK": "PET_NODE_RANK",
    "WORLD_SIZE": "PET_NNODES",
    "MASTER_ADDR": "PET_MASTER_ADDR",
    "MASTER_PORT": "PET_MASTER_PORT",
}
_VARIABLE = re.compile(rf"(\$[{{(]?)({'|'.join(_OF_A_POD)})(?!\w)")
_ROWS: Mapping[str, Row] = MappingProxyType(
    {option(row): row for row in (*TABLES["torchrun"], *TABLES[_DLROVER_RUN])}
)


@dataclass(frozen=True)
class Found:
    """A changed command and its options.

    Attributes:
        words: the command.
        launcher: what the command calls; for dlrover-run torchrun, which replaces it.
        options: values by the option's name; empty for options without a value.
        lost: options without an equivalent, with the reason.
    """

    words: Sequence[str]
    launcher: Launcher = TORCHRUN
    options: dict[str, str] = field(default_factory=dict)
    lost: tuple[str, ...] = ()

    def number(self, name: str) -> int | None:
        """Return an option's value if it is a number."""
        value = self.options.get(name, "")
        return int(value) if re.fullmatch(r"[0-9]{1,6}", value) else None

    def nodes(self, replicas: int) -> tuple[int, int] | None:
        """Return the bounds of `--nnodes`; an upper one that is a variable is `replicas`."""
        bounds = re.fullmatch(r"([0-9]{1,6}):(?:([0-9]{1,6})|\$.+)", self.options.get("nnodes", ""))
        if bounds is None:
            return None
        return int(bounds[1]), int(bounds[2]) if bounds[2] else replicas

    def processes(self, replicas: int) -> int | None:
        """Return the number of processes of a member; Accelerate's option counts all of them."""
        for name in _PROCESSES[:3]:
            if number := self.number(name):
                return number
        total = self.number("num-processes") or 0
        machines = replicas if "num-machines" in self.options else 1
        machines = self.number("num-machines") or machines
        return None if not machines or total % machines else total // machines or None


def without_world(words: Sequence[str]) -> Found | None:
    """Return a command without the options that fix a world; torchrun replaces dlrover-run.

    None: the command calls no launcher.
    """
    if not words:
        return None
    before, own = wrappers.split(words)
    program = PurePath(own[0]).name
    if program in of_torchrun.SHELLS:
        found = _shell(own)
        return found and replace(found, words=[*before, *found.words])
    if program != _DLROVER_RUN and launchers.launcher_of(own) is None:
        return None
    found = _text(" ".join(_quoted(word) for word in own))
    return found and replace(found, words=[*before, *shlex.split(found.words[0])])


def _quoted(word: str) -> str:
    """Quote a word for a shell; of an option only the value, so that its name is found."""
    option = re.fullmatch(r"(--?[A-Za-z][\w-]*=)(.*)", word, re.DOTALL)
    return option[1] + shlex.quote(option[2]) if option else shlex.quote(word)


def _shell(words: Sequence[str]) -> Found | None:
    changed: list[str] = []
    calls: list[Found] = []
    for word in words:
        found = _text(word)
        changed.append(found.words[0] if found else word)
        calls += [found] if found else []
    if not calls:
        return None
    options = {name: value for found in calls for name, value in found.options.items()}
    lost = tuple(reason for found in calls for reason in found.lost)
    return Found(changed, calls[0].launcher, options, lost)


def _text(text: str) -> Found | None:
    """Change the calls in a shell script."""
    parts = []
    position = 0
    options: dict[str, str] = {}
    lost: list[str] = []
    called: list[Launcher] = []
    for call, launcher in _calls(text):
        if call.start() < position:
            continue
        parts.append(text[position : call.start()])
        parts.append(call[0].replace(_DLROVER_RUN, "torchrun"))
        called.append(launcher)
        position = _read_options(text, call.end(), launcher, options, lost, parts.append)
    if not called:
        return None
    words = ["".join(parts) + text[position:]]
    return Found(words, called[0], options, tuple(dict.fromkeys(lost)))


def _calls(text: str) -> Iterator[tuple[re.Match[str], Launcher]]:
    """Yield the calls of launchers in a text, in their order."""
    found = [(call, TORCHRUN) for call in _CALL.finditer(text)]
    for launcher in LAUNCHERS:
        if launcher is not TORCHRUN:
            found += [(call, launcher) for call in launcher.call().finditer(text)]
    yield from sorted(found, key=lambda each: each[0].start())


def _read_options(
    text: str,
    position: int,
    launcher: Launcher,
    options: dict[str, str],
    lost: list[str],
    keep: Callable[[str], None],
) -> int:
    """Read the launcher's options up to the script; return the position of their end.

    `keep` gets the options that remain in the command.
    """
    while found := _OPTION.match(text, position):
        word = found["plain"] or found["quoted"]
        name = word.lstrip("-").replace("_", "-")
        value = found["text"] if found["quoted"] else found["value"]
        end = found.end()
        fate, has_value, why = _fate(launcher, name)
        if _SCRIPT.fullmatch(word.replace("_", "-")):
            break
        if (
            value is None
            and has_value is not False
            and (following := _SPACE_VALUE.match(text, end))
            and (has_value or not _SCRIPT.fullmatch(following["value"]))
        ):
            value = following["value"]
            end = following.end()
        if fate is Fate.KEPT:
            keep(text[position:end])
        elif fate is Fate.CHANGED:
            options[name] = (value or "").strip("\"'")
        else:
            lost.append(f"--{name} {why}")
        position = end
    return position


def _fate(launcher: Launcher, name: str) -> tuple[Fate, bool | None, str]:
    """Return what becomes of an option, whether it has a value (None: unknown), and why."""
    if launcher is TORCHRUN:
        row = _ROWS.get(name)
        return (row.fate, row.theirs.endswith(" VALUE"), row.why) if row else (Fate.KEPT, None, "")
    if launcher is DEEPSPEED and name in _OF_HOSTS:
        return Fate.LOST, True, "chooses hosts and their GPUs: all members train, with all of them"
    if name in launcher.flags:
        return Fate.CHANGED, False, ""
    if any(re.fullmatch(each, name) or each == f"-{name}" for each in launcher.options):
        return Fate.CHANGED, True, ""
    return Fate.KEPT, None, ""


def convert(draft: Draft, role: str) -> dict[str, str]:
    """Remove the options that the agent sets from a role's command, and return all options.

    Only jobs of framework pytorch have launchers of this kind.
    """
    container = draft.container(role)
    field = "command" if container.get("command") else "args"
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    if draft.framework != "pytorch" or (found := without_world(command)) is None:
        return {}
    container.pop("args", None)
    container[field] = list(found.words)
    at = (*CONTAINER, field)
    if _DLROVER_RUN in " ".join(command):
        draft.differs(role, "dlrover-run is torchrun here: the job's master does its part", *at)
    if found.options:
        left_out = ", ".join(f"--{option}" for option in found.options)
        message = f"the agent sets {found.launcher.name}'s world; left out: {left_out}"
        draft.differs(role, message, *at)
    for message in found.lost:
        draft.lost(role, message, *at)
    _rename_variables(draft, role)
    _set_fields(draft, role, found)
    return found.options


def _rename_variables(draft: Draft, role: str) -> None:
    """Replace variables that a pod has there, but here only the processes of its launcher."""
    renamed: dict[str, str] = {}

    def replaced(reference: re.Match[str]) -> str:
        renamed[reference[2]] = _OF_A_POD[reference[2]]
        return reference[1] + _OF_A_POD[reference[2]]

    container = draft.container(role)
    templates.change_words(container, lambda word: _VARIABLE.sub(replaced, word))
    if renamed:
        ours = ", ".join(f"{theirs} of a pod is {name}" for theirs, name in renamed.items())
        draft.differs(role, f"{ours} beside a launcher", *CONTAINER)
    processes = draft.roles[role].get("slotsPerReplica", 1)
    if "WORLD_SIZE" in renamed and processes > 1:
        message = f"WORLD_SIZE: PET_NNODES counts members, not their {processes} processes"
        draft.lost(role, message, *CONTAINER)


def _set_fields(draft: Draft, role: str, found: Found) -> None:
    written = draft.roles[role]
    replicas = written["replicas"]
    given = [name for name in _PROCESSES if found.options.get(name)]
    slots = found.processes(replicas)
    if slots and slots <= MAX_SLOTS:
        written.setdefault("slotsPerReplica", slots)
    elif given:
        message = f"--{given[0]}={found.options[given[0]]}: there is a process for each GPU, or one"
        draft.differs(role, message, "template")
    for name in _MEMBERS:
        if (members := found.number(name)) not in (None, replicas):
            message = f"--{name}={members}: replicas is {replicas}, which counts; compare both"
            draft.lost(role, message, "replicas")
    if (restarts := found.number("max-restarts")) is not None:
        written.setdefault("processRestartLimit", min(restarts, MAX_RESTARTS))
        message = (
            "from --max-restarts: in the life of a pod; all processes of the world restart together"
        )
        draft.differs(role, message, "processRestartLimit")
    nodes = found.nodes(replicas)
    if nodes and nodes[0] <= nodes[1] and replicas >= nodes[0]:
        written["minReplicas"] = nodes[0]
        written.setdefault("maxReplicas", max(nodes[1], replicas))
        draft.invented(role, "bounds from --nnodes", "minReplicas")
