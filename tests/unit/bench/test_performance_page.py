"""Tests the page of measured figures."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from bench import performance_page
from bench.figure import Figure, Result, append, line


async def never() -> Result:
    raise AssertionError("the page measures nothing")


def test_the_page_has_the_last_result_of_each_figure_and_the_curve(tmp_path: Path) -> None:
    figures = [
        Figure(f"{curve}_{size}_ms", never, goal=5)
        for curve in ("decision", "lost_member", "plan_of_10")
        for size in (100, 1000, 10000)
    ]
    results = tmp_path / "results.jsonl"
    for values in ([40.0], [0.4, 0.5, 0.75]):
        for figure in figures:
            append(results, line(figure, Result(values, [0.1], "ms", same_requests=[0.25])))
    page = tmp_path / "performance.md"
    performance_page.write(results, page, figures)
    text = page.read_text()
    assert "| `decision_100_ms` | 0.5 ms | 0.4 to 0.75 | 3 | 0.1 | 0.20 | 0.25 | ≤ 5 |" in text
    assert "40" not in text
    picture = ElementTree.parse(tmp_path / "performance.svg").getroot()
    lines = [each for each in picture if each.tag.endswith("polyline")]
    assert len(lines) == 3
    assert all(0 <= float(y) <= 260 for each in lines for y in _heights(each))


def test_without_all_sizes_there_is_no_curve(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    figure = Figure("decision_100_ms", never, goal=5)
    append(results, line(figure, Result([1.0], [1.0], "ms")))
    performance_page.write(results, tmp_path / "performance.md", [figure])
    assert not (tmp_path / "performance.svg").exists()
    assert "| `decision_100_ms` | 1 ms |  | 1 |" in (tmp_path / "performance.md").read_text()


def _heights(line: ElementTree.Element) -> list[str]:
    return [point.split(",")[1] for point in line.attrib["points"].split()]
