"""Commands of torchrun, and of dlrover-run with its options: what the agent sets is taken out.

Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

_SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_PROGRAMS = r"(?:torchrun|dlrover-run|python[\d.]*(?:[ \t]+-u)?[ \t]+-m[ \t]+torch\.distributed\.(?:run|launch))"
_CALL = re.compile(rf"(?:^|(?<=[\s;&|(/])){_PROGRAMS}(?=\s)")
_VALUE = r"""(?:"[^"]*"|'[^']*'|\$\([^()\s]*\)|\$\{[^}]*\}|\$(?![({])|[^\s;&|"'()$])++"""
_OPTION = re.compile(rf"[\s\\]*(?P<name>--?[A-Za-z][\w-]*)(?:=(?P<value>{_VALUE}))?(?=[\s;&|)]|$)")
_SPACE_VALUE = re.compile(rf"[ \t\\\n]+(?P<value>(?!-){_VALUE})")

_OF_THE_WORLD = (
    "nnodes",
    "node-rank",
    "standalone",
    "master-addr",
    "master-port",
    "max-restarts",
    "nproc-per-node",
)
_LAUNCHERS_OWN = (
    "exclude-straggler",
    "comm-perf-test",
    "auto-config",
    "auto-tunning",
    "save-at-breakpoint",
    "precheck",
)
_WITHOUT_VALUE = ("standalone", "network-check", *_LAUNCHERS_OWN)
_LAUNCHERS_VALUES = (
    "accelerator",
    "training-port",
    "numa-affinity",
    "membind-policy",
    "ucp-device-type",
)


@dataclass(frozen=True)
class Found:
    """A command after its change, and what its options were.

    Attributes:
        words: the command.
        options: values by the option's name, those without a value with an empty one.
        lost: options of another launcher without an equivalent.
    """

    words: Sequence[str]
    options: dict[str, str] = field(default_factory=dict)
    lost: tuple[str, ...] = ()

    def number(self, name: str) -> int | None:
        """Return an option's value, if it is a number."""
        value = self.options.get(name, "")
        return int(value) if re.fullmatch(r"[0-9]{1,6}", value) else None

    def nodes(self) -> tuple[int, int] | None:
        """Return the bounds of `--nnodes`."""
        bounds = re.fullmatch(r"([0-9]{1,6})(?::([0-9]{1,6}))?", self.options.get("nnodes", ""))
        return (int(bounds[1]), int(bounds[2] or bounds[1])) if bounds else None


def without_world(words: Sequence[str]) -> Found | None:
    """Return a command without the options that fix a world, and with torchrun in place of dlrover-run.

    None: it has no call of these programs.
    """
    if not words:
        return None
    if PurePath(words[0]).name in _SHELLS:
        return _shell(words)
    text = shlex.join(words)
    found = (
        _text(text)
        if _CALL.match(PurePath(words[0]).name + text[len(shlex.quote(words[0])) :])
        else None
    )
    return found and replace(found, words=shlex.split(found.words[0]))


def _shell(words: Sequence[str]) -> Found | None:
    changed: list[str] = []
    last: Found | None = None
    for word in words:
        found = _text(word)
        if found is not None:
            last = (
                found
                if last is None
                else Found((), last.options | found.options, last.lost + found.lost)
            )
        changed.append(word if found is None else found.words[0])
    return last and replace(last, words=changed)


def _text(text: str) -> Found | None:
    """Change the calls in a text of a shell."""
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
    """Read the launcher's own options, up to the script, and keep those that may stay.

    Returns where they end.
    """
    while option := _OPTION.match(text, position):
        name = option["name"].lstrip("-").replace("_", "-")
        value = option["value"]
        end = option.end()
        if name == "m" or name in ("module", "no-python"):
            break
        if (
            value is None
            and name not in _WITHOUT_VALUE
            and (following := _SPACE_VALUE.match(text, end))
        ):
            value = following["value"]
            end = following.end()
        known = (
            name in _OF_THE_WORLD
            or name.startswith("rdzv-")
            or name in ("network-check", "node-unit")
        )
        if known:
            options[name] = (value or "").strip("\"'")
        elif name in _LAUNCHERS_OWN or name in _LAUNCHERS_VALUES:
            lost.append(f"--{name}")
        else:
            keep(text[position:end])
        position = end
    return position
