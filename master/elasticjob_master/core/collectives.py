"""Says in one line which ranks wait in which collective, and which ranks do not.

A collective is recognized by the names of functions and files in the stack. In most hangs all ranks
but one wait in the same one. The text says where each rank is, and leaves the judgement to people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from elasticjob_master.core.stacks import Group

LONGEST_TEXT = 480
_MOST_PLACES = 4
_MOST_RANGES = 5
_INNERMOST = 12
"""A collective that is farther out has called a function of the program."""

_RULES = (
    (
        "torch.distributed",
        r"(?!_|wrapper|get_|is_|new_group)(\w+) \(torch/distributed/distributed_c10d\.py",
    ),
    ("torch.distributed", r"(_sync_module_states|_verify_\w+) \(torch/distributed/utils\.py"),
    ("NCCL", r"(nccl[A-Z]\w+)"),
    ("torch.distributed", r"(c10d::(?:ProcessGroup|Work|Reducer|TCPStore)\w*(?:::\w+)*)"),
    ("Gloo", r"(gloo::(?!transport)\w+)"),
    ("Horovod", r"(synchronize|barrier|join|\w*(?:all|broad|scatter)\w+) \(horovod/"),
    ("JAX", r"(\w+) \(jax/experimental/multihost_utils\.py"),
    ("TensorFlow", r"(\w+) \(tensorflow/python/(?:ops/collective_ops|distribute/\w*all_reduce)"),
    ("MPI", r"P?(MPI_(?:All|B|Gather|Red|Scat|Wait|Recv|Send)\w*)"),
    ("elasticjob", r"(\w+) \(elasticjob/(?:key_value|agreement)\.py"),
    (
        "a result of the device, which may be that of a collective:",
        r"(cu(?:da)?(?:Stream|Event|Device|Ctx)Synchronize)",
    ),
    (
        "a result of the device, which may be that of a collective:",
        r"(synchronize) \(torch/cuda/|(block_until_ready|_value) \(jax/_src/",
    ),
)
_LINE = re.compile(r"\((?!.*\.(?:c|cc|cpp|cxx|h|hpp|cu|S|rs):).*:\d+\)$")
_CLASSES = re.compile(r"^(?:[\w<>]+\.)+")
_COMPILED = [(library, re.compile(pattern)) for library, pattern in _RULES]


def awaited(frames: Sequence[str]) -> str:
    """Return the collective in which a thread waits; empty: none is recognized.

    Of several calls of the first library that matches, it is the outermost one, which the program
    has made itself.
    """
    names = [_CLASSES.sub("", frame) for frame in frames[:_INNERMOST]]
    for library, pattern in _COMPILED:
        matches = [found for name in names if (found := pattern.match(name))]
        if matches:
            return f"{library} {next(filter(None, matches[-1].groups()))}"
    return ""


def summary(groups: Sequence[Group]) -> str:
    """Return the text about all groups; empty if there are none."""
    waiting: dict[str, list[int]] = {}
    elsewhere: dict[str, list[int]] = {}
    problems: dict[str, list[int]] = {}
    for stack, ranks in groups:
        if collective := awaited(stack.frames):
            waiting.setdefault(collective, []).extend(ranks)
        elif stack.frames:
            elsewhere.setdefault(_place(stack.frames), []).extend(ranks)
        if stack.problem:
            problems.setdefault(stack.problem, []).extend(ranks)
    are = ("does not: it is in", "do not: they are in") if waiting else ("is in", "are in")
    texts = [f"{_ranks(ranks, 'waits', 'wait')} in {name}" for name, ranks in _first(waiting)]
    texts += [f"{_ranks(ranks, *are)} {name}" for name, ranks in _first(elsewhere)]
    texts += [f"{_ranks(ranks)}: {problem}" for problem, ranks in _first(problems)]
    left_out = sum(max(0, len(each) - _MOST_PLACES) for each in (waiting, elsewhere, problems))
    if left_out:
        texts.append(f"{left_out} more places")
    return "; ".join(texts)[:LONGEST_TEXT]


def _place(frames: Sequence[str]) -> str:
    """Return the innermost frame with a line that is not one of native code, else the innermost."""
    return next((frame for frame in frames if _LINE.search(frame)), frames[0])


def _first(places: dict[str, list[int]]) -> list[tuple[str, list[int]]]:
    """Return the places of the most ranks."""
    return sorted(places.items(), key=lambda each: (-len(each[1]), each[0]))[:_MOST_PLACES]


def _ranks(ranks: Sequence[int], one: str = "", several: str = "") -> str:
    text = f"rank {ranks[0]} {one}" if len(ranks) == 1 else f"ranks {spans(ranks)} {several}"
    return text.rstrip()


def spans(ranks: Iterable[int]) -> str:
    """Return numbers in the form `0-3, 7`, at most a few."""
    found: list[list[int]] = []
    for rank in sorted(ranks):
        if found and found[-1][1] == rank - 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    texts = [f"{first}-{last}" if last > first else f"{first}" for first, last in found]
    more = sum(last - first + 1 for first, last in found[_MOST_RANGES:])
    return ", ".join(texts[:_MOST_RANGES]) + (f" and {more} more" if more else "")
