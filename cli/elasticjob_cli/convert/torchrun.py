"""Removes the options that the agent sets from commands of torchrun and dlrover-run. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from types import MappingProxyType

from elasticjob_api.limits import MAX_RESTARTS, MAX_SLOTS

from elasticjob_cli.convert.jobs import CONTAINER, Draft
from elasticjob_cli.convert.tables.rows import TABLES, Fate, Row, option

_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_MODULE = r"python[\d.]*(?:[ \t]+-u)?[ \t]+-m[ \t]+torch\.distributed\.(?:run|launch)"
_PROGRAMS = rf"(?:torchrun|dlrover-run|{_MODULE})"
_CALL = re.compile(rf"(?:^|(?<=[\s;&|(/])){_PROGRAMS}(?=\s)")
_VALUE = r"""(?:"[^"]*"|'[^']*'|\$\([^()\s]*\)|\$\{[^}]*\}|\$(?![({])|[^\s;&|"'()$])++"""
_OPTION = re.compile(rf"[\s\\]*(?P<name>--?[A-Za-z][\w-]*)(?:=(?P<value>{_VALUE}))?(?=[\s;&|)]|$)")
_SPACE_VALUE = re.compile(rf"[ \t\\\n]+(?P<value>(?!-){_VALUE})")

_ROWS: Mapping[str, Row] = MappingProxyType(
    {option(row): row for row in (*TABLES["torchrun"], *TABLES["dlrover-run"])}
)


@dataclass(frozen=True)
class Found:
    """A changed command and its options.

    Attributes:
        words: the command.
        options: values by the option's name; empty for options without a value.
        lost: options of dlrover-run without an equivalent, with the reason.
    """

    words: Sequence[str]
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


def without_world(words: Sequence[str]) -> Found | None:
    """Return a command without the options that fix a world; torchrun replaces dlrover-run.

    None: the command calls neither program.
    """
    if not words:
        return None
    if PurePath(words[0]).name in _SHELLS:
        return _shell(words)
    text = " ".join(_quoted(word) for word in words)
    if not _CALL.match(PurePath(words[0]).name + text[len(shlex.quote(words[0])) :]):
        return None
    found = _text(text)
    return found and replace(found, words=shlex.split(found.words[0]))


def _quoted(word: str) -> str:
    """Quote a word for a shell; of an option only the value, so that its name is found."""
    option = re.fullmatch(r"(--?[A-Za-z][\w-]*=)(.*)", word, re.DOTALL)
    return option[1] + shlex.quote(option[2]) if option else shlex.quote(word)


def _shell(words: Sequence[str]) -> Found | None:
    changed: list[str] = []
    options: dict[str, str] = {}
    lost: tuple[str, ...] = ()
    has_call = False
    for word in words:
        found = _text(word)
        if found is None:
            changed.append(word)
            continue
        has_call = True
        changed.append(found.words[0])
        options |= found.options
        lost += found.lost
    if not has_call:
        return None
    return Found(changed, options, lost)


def _text(text: str) -> Found | None:
    """Change the calls in a shell script."""
    parts = []
    position = 0
    options: dict[str, str] = {}
    lost: list[str] = []
    for call in _CALL.finditer(text):
        if call.start() < position:
            continue
        parts.append(text[position : call.start()])
        parts.append(call[0].replace("dlrover-run", "torchrun"))
        position = _read_options(text, call.end(), options, lost, parts.append)
    if not parts:
        return None
    return Found([("".join(parts) + text[position:])], options, tuple(dict.fromkeys(lost)))


def _read_options(
    text: str, position: int, options: dict[str, str], lost: list[str], keep: Callable[[str], None]
) -> int:
    """Read the launcher's options up to the script; return the position of their end.

    `keep` gets the options that remain in the command.
    """
    while found := _OPTION.match(text, position):
        name = found["name"].lstrip("-").replace("_", "-")
        value = found["value"]
        end = found.end()
        row = _ROWS.get(name)
        if name == "m" or name in ("module", "no-python"):
            break
        if (
            value is None
            and (row is None or row.theirs.endswith(" VALUE"))
            and (following := _SPACE_VALUE.match(text, end))
        ):
            value = following["value"]
            end = following.end()
        if row is None or row.fate is Fate.KEPT:
            keep(text[position:end])
        elif row.fate is Fate.CHANGED:
            options[name] = (value or "").strip("\"'")
        else:
            lost.append(f"--{name} {row.why}")
        position = end
    return position


def convert(draft: Draft, role: str) -> dict[str, str]:
    """Remove the options that the agent sets from a role's command, and return all options.

    Only jobs of framework pytorch have torchrun.
    """
    container = draft.container(role)
    field = "command" if container.get("command") else "args"
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    if draft.framework != "pytorch" or (found := without_world(command)) is None:
        return {}
    container.pop("args", None)
    container[field] = list(found.words)
    at = (*CONTAINER, field)
    if "dlrover-run" in " ".join(command):
        draft.differs(role, "dlrover-run is torchrun here: the job's master does its part", *at)
    if found.options:
        left_out = ", ".join(f"--{option}" for option in found.options)
        draft.differs(role, f"the agent sets torchrun's world; left out: {left_out}", *at)
    for message in found.lost:
        draft.lost(role, message, *at)
    _set_fields(draft, role, found)
    return found.options


def _set_fields(draft: Draft, role: str, found: Found) -> None:
    written = draft.roles[role]
    processes = found.options.get("nproc-per-node")
    slots = found.number("nproc-per-node")
    if slots and slots <= MAX_SLOTS:
        written.setdefault("slotsPerReplica", slots)
    elif processes:
        message = f"--nproc-per-node={processes}: there is a process for each GPU, or one"
        draft.differs(role, message, "template")
    if (restarts := found.number("max-restarts")) is not None:
        written.setdefault("processRestartLimit", min(restarts, MAX_RESTARTS))
        message = (
            "from --max-restarts: in the life of a pod; all processes of the world restart together"
        )
        draft.differs(role, message, "processRestartLimit")
    nodes = found.nodes(written["replicas"])
    if nodes and nodes[0] <= nodes[1] and written["replicas"] >= nodes[0]:
        written["minReplicas"] = nodes[0]
        written.setdefault("maxReplicas", max(nodes[1], written["replicas"]))
        draft.invented(role, "bounds from --nnodes", "minReplicas")
