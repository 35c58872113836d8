"""Writes docs/performance.md: each figure's last result, an event's cost by job size, the peers.

`python -m bench` calls it after the measurements, so the page has what was measured, not what
somebody remembers.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from bench.figure import Figure

_SIZES = (100, 1_000, 10_000)
_CURVES = ("decision", "lost_member", "plan_of_10")
_COLOURS = ("#2563eb", "#d97706", "#059669")
_WIDTH = 560
_HEIGHT = 260
_LEFT = 56
_BOTTOM = 220
_PEERS = Path(__file__).with_name("peers.md")
_HEAD = """# Performance

Written by `make bench` from its last results. A limit is what the same machine does in the same run
without the operator or the master: `bench/` says what exactly, in the docstring of the figure.
*Same requests* is the time of a bare client that sends what the operator sends. Only ratios compare
between machines.

"""


def write(results: Path, page: Path, figures: Sequence[Figure]) -> None:
    """Write the page and its picture from the lines of the results file."""
    lines = (msgspec.json.decode(line) for line in results.read_text().splitlines())
    last = {line["figure"]: line for line in lines}
    cores = psutil.cpu_count()
    machine = f"{cores} cores ({platform.machine()}), Python {platform.python_version()}"
    text = f"{_HEAD}Machine: {machine}, {time.strftime('%Y-%m-%d')}.\n\n"
    text += "| Figure | Median | Least to most | n | Limit | Ratio | Same requests | Goal |\n"
    text += "|---|---|---|---|---|---|---|---|\n"
    text += "".join(_row(each, last[each.name]) for each in figures if each.name in last)
    if curves := _curves(last):
        picture = page.with_name("performance.svg")
        picture.write_text(_picture(curves))
        text += (
            "\n## What an event costs\n\n"
            "Milliseconds of the operator's CPU by the members of a job: a decision that "
            "finds nothing to do, a lost pod, a plan of +10.\n\n"
            f"![CPU of an event by the size of the job]({picture.name})\n"
        )
    page.write_text(text + _PEERS.read_text())


def _row(figure: Figure, result: Mapping[str, Any]) -> str:
    goal = f"{'≥' if figure.at_least else '≤'} {figure.goal:g}"
    spread = f"{result['least']:g} to {result['most']:g}" if "least" in result else ""
    same = f"{result['same_requests']:g}" if "same_requests" in result else ""
    value = f"{result['value']:g} {result['unit']}"
    cells = (
        f"`{figure.name}`", value, spread, result["n"], f"{result['limit']:g}",
        f"{result['ratio']:.2f}", same, goal,
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |\n"


def _curves(last: Mapping[str, Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the curves of which all sizes were measured."""
    names = {curve: [f"{curve}_{size}_ms" for size in _SIZES] for curve in _CURVES}
    return {
        curve: [last[name]["value"] for name in points]
        for curve, points in names.items()
        if all(name in last for name in points)
    }


def _picture(curves: Mapping[str, Sequence[float]]) -> str:
    """Return an SVG with logarithmic axes."""
    values = [value for points in curves.values() for value in points]
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)) + 1e-9)

    def y(value: float) -> float:
        return _BOTTOM - (math.log10(value) - low) / max(high - low, 1) * (_BOTTOM - 20)

    x = [_LEFT + 20 + 150 * position for position in range(len(_SIZES))]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<line x1="{_LEFT}" x2="{x[-1] + 20}" y1="{at}" y2="{at}" stroke="#ddd"/>')
        parts.append(f'<text x="6" y="{at + 4}">{10.0**power:g} ms</text>')
    for size, at in zip(_SIZES, x, strict=True):
        parts.append(f'<text x="{at}" y="{_BOTTOM + 22}" text-anchor="middle">{size:,}</text>')
    for (curve, points), colour in zip(curves.items(), _COLOURS, strict=False):
        path = " ".join(f"{at},{y(value):.1f}" for at, value in zip(x, points, strict=True))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<text x="{x[-1] + 26}" y="{y(points[-1]) + 4:.1f}" fill="{colour}">{curve}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])
