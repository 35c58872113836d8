"""The programs that run another program as it is, such as `nice`, `uv run` and `srun`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

WORD = r"[^\s;&|()]"
"""A character of a shell's word; no match crosses the end of a command."""
SPACE = r"(?:[ \t]|\\\n)+"
_FLAGS_OF_SRUN = (
    "contiguous|exact|exclusive|immediate|kill-on-bad-exit|label|no-kill|overcommit|overlap|"
    "oversubscribe|pty|quiet|spread-job|unbuffered|use-min-nodes|verbose"
)
"""Its other options have a value."""
_VALUE_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "exec": "-a",
        "env": "-[uC]|--unset|--chdir",
        "time": "-[fo]|--format|--output",
        "nice": "-n|--adjustment",
        "ionice": "-[cn]|--class|--classdata",
        "numactl": "-[ipPmNCw]|--(?:interleave|preferred|membind|cpunodebind|physcpubind)",
        "stdbuf": "-[ioe]|--(?:input|output|error)",
        "nohup|setsid|taskset|chrt": "",
        "timeout": "-[ks]|--kill-after|--signal",
        "tini|dumb-init": "-[per]|--rewrite",
        "sudo": "-[CDghprRTuU]|--(?:user|group|chdir|prompt)",
        f"(?:gosu|su-exec) +{WORD}+": "",
        "catchsegv|command|ddtrace-run|opentelemetry-instrument|unbuffer": "",
        "(?:dotenv|doppler|infisical) +run": "-[cefp]|--(?:config|env|file|project)",
        "srun": rf"-[ABcCdDeGiJLmMnNopqrStTwWx]|--(?!(?:{_FLAGS_OF_SRUN})[ ])[a-z-]+",
        "nsys +profile": "-[a-zA-Z]",  # every option has a value, which a long one has after `=`
        "ncu": "-[okscp]|--(?:export|set|section|metrics|kernel-name|launch-(?:skip|count))",
        "py-spy +record": "-[ofdr]|--(?:output|format|duration|rate)",
        "(?:poetry|pipenv|pdm|rye|hatch) +run": "",
        "(?:conda|mamba|micromamba|pixi) +run": "-[npe]|--(?:name|prefix|cwd|environment)",
        "uv +run": (
            "-[pwCif]|--(?:with|with-editable|with-requirements|python|project|package|directory|"
            "extra|group|only-group|env-file|index|index-url|extra-index-url|find-links)"
        ),
    }
)
"""The wrappers, each with its options that have a value in the next word."""


def _pattern(name: str, value_options: str) -> str:
    with_value = rf"(?:{value_options}){SPACE}{WORD}+|" if value_options else ""
    return rf"(?:{name})(?>(?:{SPACE}(?:{with_value}-{WORD}*|\w+={WORD}*|\d{WORD}*))*)"


CALL = rf"(?:{WORD}*/)?(?:{'|'.join(_pattern(*each) for each in _VALUE_OPTIONS.items())})"
"""The pattern of a wrapper with its options, and of assignments and numbers after it.

Its groups are atomic; `*+` fails where a repeated group backtracks, before Python 3.11.5.
"""
_CALLS = re.compile(rf"(?>(?:{CALL}{SPACE})*)")


def split(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of the wrappers before a program, and the command without them."""
    text = " ".join(re.sub(r"\s", "_", word) or "_" for word in command)
    found = _CALLS.match(text)
    words = len(found[0].split()) if found else 0
    return list(command[:words]), list(command[words:])
