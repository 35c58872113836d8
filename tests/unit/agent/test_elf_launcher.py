"""The launcher executes its command with arguments and environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from elasticjob_agent.elf_launcher import MACHINES, launcher
from hypothesis import given, settings
from hypothesis import strategies as st

TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=6)
NAME = st.text("LDX_!", min_size=1, max_size=4)
SHOW = "import os, sys; print(ascii([sys.argv[1:], sorted(os.environ.items())]))"


def made(folder: Path, machine: str, *command: str) -> str:
    program = folder / "program"
    program.write_bytes(launcher(machine, command))
    program.chmod(0o755)
    return str(program)


def run(*command: str, **environment: str) -> str:
    # LC_ALL, so that Python adds no LC_CTYPE by itself.
    done = subprocess.run(
        command,
        env={**environment, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout.strip()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(TEXT, max_size=3), st.lists(TEXT, max_size=3), st.dictionaries(NAME, TEXT, max_size=4)
)
def test_it_executes_its_command_with_all_arguments_and_hides_loader_variables(
    tmp_path_factory: pytest.TempPathFactory,
    fixed: list[str],
    given: list[str],
    environment: dict[str, str],
) -> None:
    program = made(
        tmp_path_factory.mktemp("launcher"), os.uname().machine, sys.executable, "-c", SHOW, *fixed
    )
    hidden = {
        f"!{name[1:]}" if name.startswith("LD_") else name: value
        for name, value in environment.items()
    }
    if len(hidden) == len(environment):  # else two names have become one
        output = ascii([[*fixed, *given], sorted({**hidden, "LC_ALL": "C.UTF-8"}.items())])
        assert run(program, *given, **environment) == output


def test_a_missing_program_ends_with_code_127(tmp_path: Path) -> None:
    assert (
        subprocess.run([made(tmp_path, os.uname().machine, "/not/there")], check=False).returncode
        == 127
    )


@pytest.mark.parametrize("machine", MACHINES)
def test_every_machines_code_does_the_same(machine: str, tmp_path: Path) -> None:
    emulator = [] if machine == os.uname().machine else [shutil.which(f"qemu-{machine}-static")]
    if emulator == [None]:
        pytest.skip(f"needs Debian's package qemu-user-static, which runs programs for {machine}")
    program = made(tmp_path, machine, sys.executable, "-c", SHOW, "one")
    output = ascii([["one", "two", ""], [("!D_A", "x"), ("LC_ALL", "C.UTF-8"), ("LD", "y")]])
    assert (
        run(*[str(argument) for argument in emulator], program, "two", "", LD_A="x", LD="y")
        == output
    )
