"""What an interpreter in standby imports, and whether it may be kept and used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from elasticjob._standby import environment
from elasticjob_agent.standby import import_list
from elasticjob_agent.standby.import_list import Memory, Report
from elasticjob_agent.standby.pool import of_console_script, position


@pytest.mark.parametrize(
    ("command", "at"),
    [
        ("python train.py", 1),
        ("/usr/bin/python3.11 -u train.py -m x", 2),
        ("python3 -uB -W ignore -Xdev -X utf8 -O a/train.py", 8),
        ("python -m package.train --x", 1),
        ("python -u -m train", 2),
        ("python -m", None),
        ("python", None),
        ("python -c print()", None),
        ("python -I train.py", None),
        ("python -P train.py", None),
        ("python -i train.py", None),
        ("python - train.py", None),
        ("python train", None),
        ("python folder/", None),
        ("torchrun train.py", None),
        ("sh -c train.py", None),
        ("python2 train.py", None),
    ],
)
def test_commands_that_run_a_script_or_module_are_recognized(command: str, at: int | None) -> None:
    assert position(command.split(), {}) == at


@pytest.mark.parametrize("name", ["PYTHONINSPECT", "PYTHONSAFEPATH"])
def test_a_command_whose_interpreter_starts_otherwise_is_not_recognized(name: str) -> None:
    assert position(["python", "train.py"], {name: "1"}) is None


@pytest.mark.parametrize(
    ("first_line", "python"),
    [
        ("#!/usr/bin/python3", ["/usr/bin/python3"]),
        ("#!/opt/python3.11 -su", ["/opt/python3.11", "-su"]),
        ("#!/opt/python3.11 -s -u", None),
        ("#! /opt/python3.11 -sE", None),
        ("#!/usr/bin/env python3", ["python3"]),
        ("#!/usr/bin/env -S python3", None),
        ("#!/bin/sh", None),
        ("\x7fELF", None),
        ("#!", None),
        ("", None),
    ],
)
def test_console_scripts_of_python_are_recognized(
    tmp_path: Path, first_line: str, python: list[str] | None
) -> None:
    script = tmp_path / "torchrun"
    script.write_text(f"{first_line}\nmain()\n")
    script.chmod(0o755)
    found = of_console_script(["torchrun", "-x"], {"PATH": str(tmp_path)})
    assert found == (python and [*python, str(script), "-x"])
    assert of_console_script(["accelerate"], {"PATH": str(tmp_path)}) is None


def report(**message: Any) -> Report:
    return import_list.report(json.dumps(message).encode())


def test_modules_are_imported_in_order_and_in_the_environment_of_the_program() -> None:
    reports = [
        report(modules=["numpy", "numpy.core"]),
        report(changes=[{"A": "1", "B": "1"}, ["C"]], path=None),
        report(changes=[{"C": "2"}, ["A"]], path=["/lib"]),
        report(modules=["torch"]),
        report(modules=["numpy", "torch.nn"]),
        report(changes=[{"MASTER_PORT": "1"}, []]),
    ]
    assert import_list.of(reports).parts == [
        {"changes": ({}, []), "path": None, "modules": ["numpy", "numpy.core"]},
        {
            "changes": ({"B": "1", "C": "2"}, ["A"]),
            "path": ["/lib"],
            "modules": ["torch", "torch.nn"],
        },
    ]
    # A later part begins with the changes after the last module.
    assert import_list.learned(reports) == 5
    later = [*reports, report(modules=["yaml"])]
    assert import_list.of(later[5 : import_list.learned(later)]).parts == [
        {"changes": ({"MASTER_PORT": "1"}, []), "path": None, "modules": ["yaml"]}
    ]
    assert import_list.learned([]) == 0


def test_a_plan_names_what_torchrun_starts_and_what_the_first_of_them_imports() -> None:
    reports = [
        report(modules=["torch"]),
        report(
            child={
                "command": ["python", "-u", "train.py"],
                "environment": {"OMP_NUM_THREADS": "1"},
                "count": 2,
            }
        ),
        report(modules=["torch", "numpy"], index=0),
        report(modules=["yaml"], index=1),
        report(modules=["lazy"], index=0),
    ]
    known = import_list.of(reports[:3])
    assert known.child == import_list.Child(
        ("python", "-u", "train.py"), {"OMP_NUM_THREADS": "1"}, count=2
    )
    assert [part["modules"] for part in known.parts] == [["torch"]]
    assert [part["modules"] for part in known.parts_of_child] == [["torch", "numpy"]]
    assert import_list.decoded(import_list.encoded(known)) == known
    later = known + import_list.of(reports[3:])
    assert later.child == known.child
    assert [part["modules"] for part in later.parts_of_child] == [["torch", "numpy"], ["lazy"]]


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[]", b"{", b'{"modules": 1}', b'{"modules": [1]}', b'{"changes": 1}',
        b'{"changes": [[], []]}', b'{"changes": [{"A": 1}, []]}', b'{"path": [null]}',
        b'{"index": "a"}', b'{"problem": 1}', b'{"child": 1}', b'{"child": {}}', b"\xff",
        b'{"child": {"command": ["a", "b", "c"], "environment": {}, "count": 65}}',
        b'{"child": {"command": ["a", "b", "c"], "environment": {"A": 1}, "count": 1}}',
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused(line: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        import_list.report(line)


@pytest.mark.parametrize(
    ("world", "reads", "different"),
    [
        ({}, [], None),
        ({"RANK": "1"}, [], None),
        ({"RANK": "1"}, ["HOME"], None),
        ({"RANK": "1"}, ["RANK"], "RANK"),
        ({"LOG": "/logs/1"}, ["LOG"], "LOG"),
        ({"TF_CONFIG": "{}", "RANK": "0"}, ["TF_CONFIG", "RANK"], "RANK"),
        # Compiled libraries read these when they are loaded, and nobody sees it.
        ({"OMP_NUM_THREADS": "1"}, [], "OMP_NUM_THREADS"),
        ({"LD_PRELOAD": "x.so"}, [], "LD_PRELOAD"),
        ({"PYTHONHASHSEED": "1"}, [], "PYTHONHASHSEED"),
    ],
)
def test_a_standby_fits_a_world_if_nothing_that_its_imports_read_is_different(
    world: dict[str, str], reads: list[str], different: str | None
) -> None:
    container = {"HOME": "/root", "LOG": "/logs/$(ELASTICJOB_RANK)"}
    assert environment.difference(container, {**container, **world}, frozenset(reads)) == different


def test_a_standby_must_leave_a_margin_of_the_memory() -> None:
    assert import_list.fits(Memory(total=1000, left=500), size=200, count=2)
    assert not import_list.fits(Memory(total=1000, left=499), size=200, count=2)
    assert not import_list.fits(Memory(total=1000, left=0), size=0, count=1)
    assert import_list.fits(Memory(total=1000, left=900, together=True), size=200, count=2)
    assert not import_list.fits(Memory(total=1000, left=899, together=True), size=200, count=2)
    assert not import_list.is_short(Memory(total=1000, left=50))
    assert import_list.is_short(Memory(total=1000, left=49))
