"""Tests the worlds of measured jobs with a small profile of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import measured_worlds
from bench.measured_worlds import BATCHES, GPUS, STARTS, profiles_folder

PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,128,1.0,0.1
1,512,2.0,0.1
4,128,1.2,0.3
4,512,2.2,0.3
44,128,2.0,1.2
53,128,9.0,1.2
"""
SCALABILITY = """num_nodes,num_replicas,local_bsz,step_time,sync_time
16,64,32,4.0,3.0
8,8,128,8.0,1.2
"""


def test_a_world_has_the_measured_rates_and_those_between_them(tmp_path: Path) -> None:
    folder = tmp_path / "cifar10"
    folder.mkdir()
    (folder / "placements.csv").write_text(PLACEMENTS)
    (folder / "scalability.csv").write_text(SCALABILITY)
    worlds = list(measured_worlds.measured_worlds(tmp_path, "cifar10"))
    assert len(worlds) == len(BATCHES["cifar10"]) * len(STARTS)
    small = worlds[0]
    large = worlds[-1]
    assert small.curve(1) == pytest.approx(512 / 2.0)
    assert small.curve(4) == pytest.approx(512 / 1.2)
    assert small.curve(8) == pytest.approx(512 / 2.0), "on two full nodes, with the least share"
    between = ((1 + 1 / 3) * (1.2 + 1 / 3)) ** 0.5  # 256 samples each, halfway from 1 to 4 members
    assert small.curve(2) == pytest.approx(512 / between)
    assert small.curve(64) == pytest.approx(512 / 4.0)
    assert large.curve(1) == pytest.approx(2048 / (4 * 1.9 + 0.1)), "computed in parts"
    assert [large.node_of(index) for index in (0, GPUS - 1, GPUS)] == ["node-0", "node-0", "node-1"]


def test_without_profiles_there_are_no_measured_worlds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICJOB_TRACES", str(tmp_path))
    assert profiles_folder() is None
    (tmp_path / "profiles").mkdir()
    assert profiles_folder() == tmp_path / "profiles"
