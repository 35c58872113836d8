"""Reads the code blocks of the documentation: YAML, and commands of a shell."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("examples/*.md")]
)
TUTORIALS = REPOSITORY / "docs" / "tutorials"


def blocks(page: Path, language: str) -> list[str]:
    """Return the page's code blocks of a language, without the indentation of a list."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", page.read_text(), re.M | re.S)
    return [re.sub(rf"^{indent}", "", text, flags=re.M) for indent, text in found]


def command_lines(block: str) -> list[str]:
    """Return the lines of a console block that a user types, without the prompt."""
    joined = block.replace("\\\n", " ")
    return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]


def commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line, without redirections, variables and comments."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    found: list[list[str]] = [[]]
    is_file = False
    for word in words:
        if set(word) <= set("|&;"):
            found.append([])
        elif set(word) <= set("<>"):
            is_file = True
        elif is_file:
            is_file = False
        elif found[-1] or not re.match(r"\w+=", word):
            found[-1].append(word)
    for command in found:
        if command[:1] == ["eval"]:
            yield from commands(command[1].removeprefix("$(").removesuffix(")"))
        elif command:
            yield command


def run_as_user(lines: list[str], *, folder: Path, environment: Mapping[str, str]) -> str:
    """Run command lines one after the other in a shell that ends at an error; return the output.

    The environment's PATH begins with the project's commands.
    """
    path = f"{Path(sys.executable).parent}:{environment.get('PATH', '')}"
    done = subprocess.run(
        ["bash", "-exo", "pipefail", "-c", "\n".join(lines)],
        cwd=folder,
        env={**environment, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=580,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout
